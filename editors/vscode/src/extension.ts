/** One language client per window, its commands, and the settings that need a restart. */
import { commands, ConfigurationTarget, env, type ExtensionContext, StatusBarAlignment, window, workspace } from "vscode";
import { LanguageClient, type LanguageClientOptions, State } from "vscode-languageclient/node";
import { findServer, SECTION, serverSettings } from "./server";
import { show, type Status } from "./status";

class Adapter {
  readonly log = window.createOutputChannel("Midspan", { log: true });
  readonly item = window.createStatusBarItem("midspan", StatusBarAlignment.Right);
  isWanted = false;
  private client: LanguageClient | undefined;
  /** Starts and stops follow one another. */
  private last: Promise<void> = Promise.resolve();

  restart(): void {
    this.isWanted = true;
    this.stop();
    const command = findServer();
    if (command === undefined) return this.complain();
    const client = this.create(command);
    this.client = client;
    this.queue(() => client.start());
  }

  stop(): void {
    const old = this.client;
    this.client = undefined;
    this.queue(() => old?.dispose());
  }

  private queue(action: () => Promise<void> | undefined): void {
    this.last = this.last.then(action).catch((error: unknown) => this.log.error(String(error)));
  }

  private create(command: string): LanguageClient {
    const documentSelector = languages().flatMap((language) =>
      ["file", "untitled"].map((scheme) => ({ scheme, language })),
    );
    const options: LanguageClientOptions = {
      documentSelector,
      outputChannel: this.log,
      middleware: { workspace: { configuration: ({ items }) => items.map(() => serverSettings()) } },
    };
    const client = new LanguageClient(SECTION, "Midspan", { command, args: ["lsp"] }, options);
    client.onNotification("midspan/status", (status: Status) => show(this.item, status));
    client.onDidChangeState(() => this.refresh());
    return client;
  }

  refresh(): void {
    if (this.client) show(this.item, statusOf(this.client.state));
  }

  private complain(): void {
    const named = workspace.getConfiguration(SECTION).get("path", "");
    const reason = named
      ? `midspan.path is "${named}", which is not the absolute path of a program.`
      : "The program midspan is neither on PATH nor in the workspace's .venv. Install it, or set midspan.path.";
    show(this.item, { state: "failed", reason });
    this.log.error(reason);
    void window.showErrorMessage(`Midspan cannot start. ${reason}`, "Open Setting").then((chosen) => {
      const place = env.remoteName ? "openRemoteSettings" : "openSettings";
      if (chosen) void commands.executeCommand(`workbench.action.${place}`, { query: "midspan.path" });
    });
  }
}

export function activate({ subscriptions }: ExtensionContext): void {
  const adapter = new Adapter();
  // Most windows never need the server: it starts with the first document that it completes.
  const meet = ({ languageId }: { languageId: string }) => {
    if (!adapter.isWanted && languages().includes(languageId)) adapter.restart();
  };
  subscriptions.push(
    adapter.log,
    adapter.item,
    { dispose: () => adapter.stop() },
    commands.registerCommand("midspan.restart", () => adapter.restart()),
    commands.registerCommand("midspan.showLog", () => adapter.log.show()),
    commands.registerCommand("midspan.toggle", toggle),
    workspace.onDidOpenTextDocument(meet),
    workspace.onDidChangeConfiguration((change) => {
      const isRestart = ["path", "languages"].some((key) => change.affectsConfiguration(`${SECTION}.${key}`));
      if (isRestart && adapter.isWanted) adapter.restart();
      if (change.affectsConfiguration(`${SECTION}.enabled`)) adapter.refresh();
    }),
  );
  workspace.textDocuments.forEach(meet);
}

/** Switches suggestions on or off where they were set: in the workspace if it says anything, else for the user. */
async function toggle(): Promise<void> {
  const configuration = workspace.getConfiguration(SECTION);
  const isWorkspace = configuration.inspect("enabled")?.workspaceValue !== undefined;
  const target = isWorkspace ? ConfigurationTarget.Workspace : ConfigurationTarget.Global;
  await configuration.update("enabled", !configuration.get("enabled", true), target);
}

function languages(): string[] {
  return workspace.getConfiguration(SECTION).get("languages", ["python"]);
}

function statusOf(state: State): Status {
  if (state === State.Stopped) return { state: "failed", reason: "the language server does not run" };
  if (state === State.Starting) return { state: "starting" };
  const isEnabled = workspace.getConfiguration(SECTION).get("enabled", true);
  return isEnabled ? { state: "ready" } : { state: "off", reason: "midspan.enabled is false" };
}
