/** What the extension is made of, and which command leads where. */
import { commands, type ExtensionContext, window, workspace } from "vscode";
import type { LanguageClient } from "vscode-languageclient/node";
import { Adapter } from "./adapter";
import { CanvasPanel } from "./canvas";
import { Changes } from "./changes";
import { Preview, PREVIEW } from "./preview";
import { SECTION } from "./server";
import { languages, toggle, toggleLanguage } from "./switches";

/** What other extensions get of this one: the client, whose server answers `midspan/status` and the like. */
export interface Api {
  readonly client: LanguageClient | undefined;
}

export function activate({ extensionUri, subscriptions }: ExtensionContext): Api {
  const adapter = new Adapter(extensionUri);
  const preview = new Preview();
  const changes = new Changes(adapter, preview);
  const canvas = new CanvasPanel(adapter, extensionUri);
  // Most windows never need the server: it starts with the first document that it completes.
  const meet = ({ languageId }: { languageId: string }) => {
    if (!adapter.isWanted && languages().includes(languageId)) adapter.restart();
  };
  adapter.onStart = (client) => canvas.attach(client);
  adapter.onServerCommand = (command, values) => changes.serverCommand(command, values);
  const run: Record<string, () => unknown> = {
    toggle,
    toggleLanguage,
    restart: () => adapter.restart(),
    showLog: () => adapter.log.show(),
    acceptWord: () => commands.executeCommand("editor.action.inlineSuggest.acceptNextWord"),
    acceptLine: () => commands.executeCommand("editor.action.inlineSuggest.acceptNextLine"),
    editSelection: () => changes.editSelection(),
    fillHoles: () => changes.fillHoles(),
    acceptChange: () => preview.acceptOne(),
    rejectChange: () => preview.rejectOne(),
    acceptAllChanges: () => preview.acceptAll(),
    rejectAllChanges: () => preview.close(),
    watchCanvas: () => canvas.open(),
  };
  subscriptions.push(
    adapter,
    preview,
    canvas,
    ...Object.entries(run).map(([name, action]) => commands.registerCommand(`${SECTION}.${name}`, action)),
    workspace.registerTextDocumentContentProvider(PREVIEW, preview),
    workspace.onDidOpenTextDocument(meet),
    workspace.onDidChangeConfiguration((change) => {
      if (!change.affectsConfiguration(SECTION)) return;
      const isRestart = ["path", "languages"].some((key) => change.affectsConfiguration(`${SECTION}.${key}`));
      if (isRestart && adapter.isWanted) adapter.restart();
      else adapter.status.forget();
    }),
    workspace.onDidGrantWorkspaceTrust(() => {
      if (adapter.isWanted && !adapter.client) adapter.restart(); // now the workspace may offer a program
    }),
    window.onDidChangeActiveTextEditor(() => adapter.status.turn()),
  );
  workspace.textDocuments.forEach(meet);
  return {
    get client() {
      return adapter.client;
    },
  };
}
