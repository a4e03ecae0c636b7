/** Where the language server is found, and which of its settings the user has made. */
import { accessSync, constants, statSync } from "node:fs";
import { delimiter, isAbsolute, join } from "node:path";
import { workspace } from "vscode";

export const SECTION = "midspan";

/** Settings of this extension; the server would call them unknown. */
const OWN_KEYS = ["path", "languages"];

const [PROGRAM, SCRIPTS] = process.platform === "win32" ? ["midspan.exe", "Scripts"] : ["midspan", "bin"];

/** Returns the path of the server: the setting, else `midspan` on PATH, else that of a trusted workspace's `.venv`. */
export function findServer(): string | undefined {
  const named = workspace.getConfiguration(SECTION).get("path", "");
  if (named) return isAbsolute(named) && isProgram(named) ? named : undefined;
  const folders = (process.env["PATH"] ?? "").split(delimiter).filter(isAbsolute);
  const own = workspace.isTrusted ? (workspace.workspaceFolders ?? []) : [];
  folders.push(...own.map(({ uri }) => join(uri.fsPath, ".venv", SCRIPTS)));
  return folders.map((folder) => join(folder, PROGRAM)).find(isProgram);
}

/** Returns what the user has set for the server; the rest is left to the server's own file and its defaults. */
export function serverSettings(): Record<string, unknown> {
  const configuration = workspace.getConfiguration(SECTION);
  const isSet = (key: string): boolean => {
    const values = configuration.inspect(key);
    return (values?.workspaceFolderValue ?? values?.workspaceValue ?? values?.globalValue) !== undefined;
  };
  const all = workspace.getConfiguration().get<Record<string, unknown>>(SECTION, {});
  return Object.fromEntries(Object.entries(all).filter(([key]) => !OWN_KEYS.includes(key) && isSet(key)));
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
