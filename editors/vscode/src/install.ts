/** What a user is offered when there is no server to start. */
import { commands, env, Uri, window, workspace } from "vscode";
import { SECTION } from "./server";

/** Tells the user that the server is missing and what can be done; returns the reason. */
export function offerToInstall(extension: Uri): string {
  const named = workspace.getConfiguration(SECTION).get("path", "");
  const reason = named
    ? `midspan.path is "${named}", which is not the absolute path of a program.`
    : "The program midspan is neither on PATH nor in the workspace's .venv.";
  const deeds: Record<string, () => void> = {
    "Open Setting": () => {
      const place = env.remoteName ? "openRemoteSettings" : "openSettings";
      void commands.executeCommand(`workbench.action.${place}`, { query: "midspan.path" });
    },
    // It begins with the set-up, and is read from the package, not from a marketplace.
    "How to install": () => void commands.executeCommand("markdown.showPreview", Uri.joinPath(extension, "readme.md")),
  };
  void window
    .showErrorMessage(`Midspan cannot start. ${reason}`, ...Object.keys(deeds))
    .then((chosen) => chosen && deeds[chosen]?.());
  return reason;
}
