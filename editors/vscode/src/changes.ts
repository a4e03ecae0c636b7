/** Changes of a whole selection and of holes: asked for with progress, then previewed. */
import { type CancellationToken, ProgressLocation, type TextEditor, window, workspace } from "vscode";
import { type LanguageClient, LSPErrorCodes, ResponseError, WorkDoneProgress } from "vscode-languageclient/node";
import type { Adapter } from "./adapter";
import { pickEdit } from "./pick";
import type { Preview } from "./preview";
import { type Abilities, type Asked, EDIT, type Edited, HOLES, PRESETS, REQUEST_OF_COMMAND } from "./protocol";

const TITLES = { [EDIT]: "Midspan: editing", [HOLES]: "Midspan: filling holes" } as const;

export class Changes {
  constructor(
    private readonly adapter: Adapter,
    private readonly preview: Preview,
  ) {}

  /** Asks what to do with the selection, or at the cursor, and previews the answer. */
  async editSelection(): Promise<void> {
    const [client, editor] = [this.adapter.running, activeEditor()];
    if (!client || !editor) return;
    const choice = await pickEdit(await client.sendRequest<Abilities>(PRESETS, {}));
    if (!choice) return;
    const range = client.code2ProtocolConverter.asRange(editor.selection);
    await this.ask(client, EDIT, { ...asked(client, editor), ...choice, range });
  }

  /** Fills the holes of the selection, at all cursors, or, with one cursor, of the whole document. */
  async fillHoles(): Promise<void> {
    const [client, editor] = [this.adapter.running, activeEditor()];
    if (!client || !editor) return;
    const { asPosition, asRange } = client.code2ProtocolConverter;
    const { selection, selections } = editor;
    let where: Partial<Asked> = {};
    if (selections.length > 1) where = { positions: selections.map(({ active }) => asPosition(active)) };
    else if (!selection.isEmpty) where = { range: asRange(selection) };
    await this.ask(client, HOLES, { ...asked(client, editor), ...where });
  }

  /** Carries out a command of the server with a preview; undefined for a command that is the server's own affair. */
  serverCommand(command: string, values: unknown[]): Promise<void> | undefined {
    const method = REQUEST_OF_COMMAND[command];
    const client = method && this.adapter.running;
    return client && this.ask(client, method, values[0] as Asked);
  }

  private async ask(client: LanguageClient, method: typeof EDIT | typeof HOLES, params: Asked): Promise<void> {
    const options = { location: ProgressLocation.Notification, title: TITLES[method], cancellable: true };
    const answer = await window.withProgress(options, async (progress, token) => {
      const workDoneToken = crypto.randomUUID();
      let done = 0;
      const shown = client.onProgress(WorkDoneProgress.type, workDoneToken, (step) => {
        if (step.kind === "end") return;
        const increment = (step.percentage ?? done) - done;
        done += increment;
        progress.report({ increment, ...(step.message !== undefined && { message: step.message }) });
      });
      try {
        return await this.adapter.status.during(request(client, method, { ...params, workDoneToken }, token));
      } finally {
        shown.dispose();
      }
    });
    if (!answer) return;
    if (answer.edits.length === 0) {
      void window.showInformationMessage(`Midspan: ${answer.silence ?? answer.message ?? "there is nothing to change here"}`);
      return;
    }
    const document = await workspace.openTextDocument(client.protocol2CodeConverter.asUri(answer.textDocument.uri));
    const hunks = await client.protocol2CodeConverter.asTextEdits([...answer.edits]);
    await this.preview.show(document, answer.textDocument.version, hunks, answer.message ?? undefined);
  }
}

/** Returns the answer; undefined when the user withdrew the request. */
async function request(
  client: LanguageClient,
  method: string,
  params: Asked & { workDoneToken: string },
  token: CancellationToken,
): Promise<Edited | undefined> {
  try {
    return await client.sendRequest<Edited>(method, params, token);
  } catch (error) {
    if (error instanceof ResponseError && error.code === LSPErrorCodes.RequestCancelled) return undefined;
    throw error;
  }
}

function asked(client: LanguageClient, { document }: TextEditor): Asked {
  return { textDocument: client.code2ProtocolConverter.asVersionedTextDocumentIdentifier(document) };
}

function activeEditor(): TextEditor | undefined {
  const editor = window.activeTextEditor;
  if (!editor) void window.showInformationMessage("Midspan: open a file first.");
  return editor;
}
