/** What a user is offered when there is no server to start. */
import { commands, env, window, workspace } from "vscode";
import { SECTION } from "./server";

/** Tells the user that the server is missing and what can be done; returns the reason. */
export function offerToInstall(retry: () => void): string {
  const named = workspace.getConfiguration(SECTION).get("path", "");
  const reason = named
    ? `midspan.path is "${named}", which is not the absolute path of a program.`
    : "The program midspan is neither on PATH nor in the workspace's .venv.";
  const deeds: Record<string, () => void> = {
    ...(named ? {} : { "Install in Terminal": () => install(retry) }),
    "Open Setting": () => {
      const place = env.remoteName ? "openRemoteSettings" : "openSettings";
      void commands.executeCommand(`workbench.action.${place}`, { query: "midspan.path" });
    },
  };
  void window
    .showErrorMessage(`Midspan cannot start. ${reason}`, ...Object.keys(deeds))
    .then((chosen) => chosen && deeds[chosen]?.());
  return reason;
}

/** Types the command that installs the server where it will be found; the user looks at it and presses Enter. */
function install(retry: () => void): void {
  const folder = workspace.workspaceFolders?.[0];
  const terminal = window.createTerminal({ name: "Install Midspan", ...(folder && { cwd: folder.uri }) });
  const [python, pip] = process.platform === "win32" ? ["py", ".venv\\Scripts\\pip"] : ["python3", ".venv/bin/pip"];
  terminal.sendText(folder ? `${python} -m venv .venv && ${pip} install midspan` : "pipx install midspan", false);
  terminal.show();
  void window.showInformationMessage("Midspan: press Enter in the terminal, and close it when the installation is done.");
  const closed = window.onDidCloseTerminal((each) => {
    if (each !== terminal) return;
    closed.dispose();
    retry();
  });
}
