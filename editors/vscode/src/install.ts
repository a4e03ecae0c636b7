/** What a user is offered when there is no server to start. */
import { isAbsolute } from "node:path";
import { commands, env, Uri, window, workspace } from "vscode";
import { SECTION } from "./server";

/** Tells the user that the server is missing and what can be done; returns the reason. */
export function offerToInstall(extension: Uri): string {
  const reason = whyMissing();
  const deeds: Record<string, () => void> = {
    "Open Setting": () => {
      const place = env.remoteName ? "openRemoteSettings" : "openSettings";
      void commands.executeCommand(`workbench.action.${place}`, { query: "midspan.path" });
    },
    ...(!workspace.isTrusted && { "Manage Trust": () => void commands.executeCommand("workbench.trust.manage") }),
    // It begins with the set-up, and is read from the package, not from a marketplace.
    "How to install": () => void commands.executeCommand("markdown.showPreview", Uri.joinPath(extension, "readme.md")),
  };
  void window
    .showErrorMessage(`Midspan cannot start. ${reason}`, ...Object.keys(deeds))
    .then((chosen) => chosen && deeds[chosen]?.());
  return reason;
}

function whyMissing(): string {
  const named = workspace.getConfiguration(SECTION).get("path", "");
  if (named && !isAbsolute(named)) return `midspan.path is "${named}"; it must be an absolute path.`;
  if (named) return `midspan.path is "${named}", where no program is.`;
  return workspace.isTrusted
    ? "The program midspan is neither on PATH nor in the workspace's .venv."
    : "The program midspan is not on PATH, and what this workspace names counts only once you trust it.";
}
