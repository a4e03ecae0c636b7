/** What switches suggestions on and off: for all, or for one language. */
import { ConfigurationTarget, window, workspace } from "vscode";
import { SECTION } from "./server";

/** Why nothing is suggested, and the command that changes it with its description. */
export interface Off {
  readonly reason: string;
  readonly remedy: readonly [string, string];
}

/** Returns the languages that the server is told of. */
export function languages(): string[] {
  return workspace.getConfiguration(SECTION).get("languages", ["python"]);
}

/** Returns why the settings leave the active editor without suggestions; undefined when they do not. */
export function whyOff(): Off | undefined {
  if (!workspace.getConfiguration(SECTION).get("enabled", true))
    return { reason: "midspan.enabled is false", remedy: ["toggle", "switch it on"] };
  const language = window.activeTextEditor?.document.languageId;
  if (language === undefined) return undefined;
  if (disabledLanguages().includes(language))
    return { reason: `midspan.disabled_languages holds ${language}`, remedy: ["toggleLanguage", "switch it on"] };
  if (!languages().includes(language))
    return { reason: `midspan.languages does not hold ${language}`, remedy: ["toggle", "switch it off everywhere"] };
  return undefined;
}

/** Switches suggestions on or off. */
export async function toggle(): Promise<void> {
  await update("enabled", !workspace.getConfiguration(SECTION).get("enabled", true));
}

/** Switches suggestions on or off in the language of the active editor. */
export async function toggleLanguage(): Promise<void> {
  const language = window.activeTextEditor?.document.languageId;
  if (language === undefined) {
    void window.showInformationMessage("Midspan: open a file first; its language is what is switched on or off.");
    return;
  }
  const disabled = disabledLanguages();
  const others = disabled.filter((each) => each !== language);
  await update("disabled_languages", others.length < disabled.length ? others : [...disabled, language]);
}

function disabledLanguages(): string[] {
  return workspace.getConfiguration(SECTION).get("disabled_languages", []);
}

/** Writes a setting where it was made: in the workspace if that says anything, else for the user. */
async function update(key: string, value: unknown): Promise<void> {
  const configuration = workspace.getConfiguration(SECTION);
  const isWorkspace = configuration.inspect(key)?.workspaceValue !== undefined;
  await configuration.update(key, value, isWorkspace ? ConfigurationTarget.Workspace : ConfigurationTarget.Global);
}
