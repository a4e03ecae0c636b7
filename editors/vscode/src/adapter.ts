/** The language server of this window: started, stopped, and heard. */
import { type Disposable, type Uri, window } from "vscode";
import { LanguageClient, type LanguageClientOptions, type Middleware, State } from "vscode-languageclient/node";
import { offerToInstall } from "./install";
import { findServer, SECTION, serverSettings } from "./server";
import { type Report, StatusItem } from "./status";
import { languages } from "./switches";

/** The server's tokens for the progress of loading a model start with this. */
const LOADING = "midspan/loading";

export class Adapter implements Disposable {
  readonly log = window.createOutputChannel("Midspan", { log: true });
  readonly status = new StatusItem();
  isWanted = false;
  /** Called with every client before it starts. */
  onStart: (client: LanguageClient) => void = () => undefined;
  /** Says what a command of the server does here, if it is not left to the server. */
  onServerCommand: (command: string, values: unknown[]) => Promise<void> | undefined = () => undefined;
  client: LanguageClient | undefined;
  /** Starts and stops follow one another. */
  private last: Promise<void> = Promise.resolve();

  constructor(private readonly extension: Uri) {}

  /** Returns the client if its server can be asked; otherwise tells the user why not. */
  get running(): LanguageClient | undefined {
    if (this.client?.state === State.Running) return this.client;
    if (!this.isWanted)
      void window.showInformationMessage(`Midspan starts with the first file in a language that it completes: ${languages().join(", ")}.`);
    else if (this.client?.state === State.Starting)
      void window.showInformationMessage("Midspan is still starting. Try again in a moment.");
    else
      void window.showWarningMessage("Midspan: the language server does not run. See its log.", "Show Log").then((chosen) => {
        if (chosen) this.log.show();
      });
    return undefined;
  }

  restart(): void {
    this.isWanted = true;
    this.stop();
    const command = findServer();
    if (command === undefined) {
      const reason = offerToInstall(this.extension);
      this.log.error(reason);
      this.status.local({ state: "failed", reason });
      return;
    }
    const client = this.create(command);
    this.client = client;
    this.onStart(client);
    this.queue(() => client.start());
  }

  stop(): void {
    const old = this.client;
    this.client = undefined;
    this.queue(() => old?.dispose());
  }

  dispose(): void {
    this.stop();
    this.log.dispose();
    this.status.dispose();
  }

  private queue(action: () => Promise<void> | undefined): void {
    this.last = this.last.then(action).catch((error: unknown) => this.log.error(String(error)));
  }

  private create(command: string): LanguageClient {
    const documentSelector = languages().flatMap((language) => [
      { scheme: "file", language },
      { scheme: "untitled", language },
      { notebook: "*", language },
    ]);
    const options: LanguageClientOptions = { documentSelector, outputChannel: this.log, middleware: this.middleware() };
    const client = new LanguageClient(SECTION, "Midspan", { command, args: ["lsp"] }, options);
    client.onNotification("midspan/status", (report: Report) => this.status.report(report));
    client.onDidChangeState(({ newState }) => {
      if (this.client === client) this.status.local(statusOf(newState));
    });
    return client;
  }

  private middleware(): Middleware {
    return {
      workspace: { configuration: ({ items }) => items.map(() => serverSettings()) },
      provideInlineCompletionItems: (document, position, context, token, next) =>
        this.status.during(next(document, position, context, token)),
      executeCommand: (command, values, next) => this.onServerCommand(command, values) ?? next(command, values),
      handleWorkDoneProgress: (token, params, next) => {
        if (!String(token).startsWith(LOADING)) return next(token, params);
        this.status.loading(params.kind === "end" ? undefined : (params.percentage ?? 0));
      },
    };
  }
}

function statusOf(state: State): Report | undefined {
  if (state === State.Running) return undefined;
  if (state === State.Starting) return { state: "starting" };
  const reason = state === State.StartFailed ? "the language server cannot start" : "the language server does not run";
  return { state: "failed", reason };
}
