/** A change shown as a diff before it is made: accepted or rejected hunk by hunk, or all of it in one step. */
import {
  commands,
  type Disposable,
  EndOfLine,
  EventEmitter,
  Range,
  Selection,
  type TextDocument,
  type TextDocumentContentProvider,
  TabInputTextDiff,
  TextEdit,
  Uri,
  window,
  workspace,
  WorkspaceEdit,
} from "vscode";
import { applied, type Hunk, placesOf, without } from "./hunk";

/** The scheme of the text as it would be. */
export const PREVIEW = "midspan-preview";

const MOVED = "Midspan: the text has changed since; nothing was changed. Ask again.";

interface Open {
  readonly document: TextDocument;
  readonly uri: Uri;
  /** Of the document that the hunks belong to. */
  version: number;
  hunks: readonly Hunk[];
}

export class Preview implements TextDocumentContentProvider, Disposable {
  private readonly changed = new EventEmitter<Uri>();
  readonly onDidChange = this.changed.event;
  private open: Open | undefined;
  private nShown = 0;
  private isApplying = false;
  private readonly hooks = [
    this.changed,
    workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
      if (document === this.open?.document && contentChanges.length > 0 && !this.isApplying) void this.decline();
    }),
    window.tabGroups.onDidChangeTabs(({ closed }) => {
      if (closed.some(({ input }) => this.isOurs(input))) this.forget();
    }),
  ];

  /** Shows what `edits` make of a version of a document, in the place of what was shown before. */
  async show(document: TextDocument, version: number, edits: readonly TextEdit[], note?: string): Promise<void> {
    await this.close();
    if (document.version !== version) return void window.showWarningMessage(MOVED);
    const eol = document.eol === EndOfLine.CRLF ? "\r\n" : "\n";
    const hunks = edits.map(({ range, newText }) => ({
      start: document.offsetAt(range.start),
      end: document.offsetAt(range.end),
      text: newText.replace(/\r?\n/g, eol),
    }));
    // The number makes every preview a document of its own; the path gives it the language of the other.
    const uri = Uri.from({ scheme: PREVIEW, path: document.uri.path, query: String(++this.nShown) });
    this.open = { document, uri, version, hunks };
    await commands.executeCommand("setContext", "midspan.isPreviewing", true);
    const name = document.uri.path.split("/").at(-1);
    await commands.executeCommand("vscode.diff", document.uri, uri, `Midspan: ${name}${note ? ` (${note})` : ""}`);
    this.goTo(0);
  }

  provideTextDocumentContent(uri: Uri): string {
    return this.open?.uri.toString() === uri.toString() ? applied(this.open.document.getText(), this.open.hunks) : "";
  }

  /** Makes the change at the cursor. */
  async acceptOne(): Promise<void> {
    const open = this.open;
    const hunk = open?.hunks[this.atCursor(open)];
    if (!open || !hunk || !(await this.apply(open, [hunk]))) return;
    await this.goOn(open, without(open.hunks, hunk));
  }

  /** Takes the change at the cursor out of the preview. */
  async rejectOne(): Promise<void> {
    const open = this.open;
    const hunk = open?.hunks[this.atCursor(open)];
    if (open && hunk) await this.goOn(open, open.hunks.filter((each) => each !== hunk));
  }

  /** Makes all changes that are left; one undo takes them back. */
  async acceptAll(): Promise<void> {
    const open = this.open;
    if (open && (await this.apply(open, open.hunks))) await this.goOn(open, []);
  }

  /** Ends the preview; what was not accepted is not made. */
  async close(): Promise<void> {
    const tabs = window.tabGroups.all.flatMap(({ tabs }) => tabs).filter(({ input }) => this.isOurs(input));
    this.forget();
    if (tabs.length > 0) await window.tabGroups.close(tabs);
  }

  dispose(): void {
    for (const hook of this.hooks) hook.dispose();
  }

  private async apply(open: Open, hunks: readonly Hunk[]): Promise<boolean> {
    const { document, version } = open;
    const edit = new WorkspaceEdit();
    edit.set(
      document.uri,
      hunks.map(({ start, end, text }) => new TextEdit(new Range(document.positionAt(start), document.positionAt(end)), text)),
    );
    this.isApplying = true;
    // VS Code refuses an edit of a version that is no longer there.
    const isDone = document.version === version && (await workspace.applyEdit(edit));
    this.isApplying = false;
    if (!isDone) await this.decline();
    open.version = document.version;
    return isDone;
  }

  private async goOn(open: Open, hunks: readonly Hunk[]): Promise<void> {
    open.hunks = hunks;
    if (hunks.length > 0) {
      this.changed.fire(open.uri);
      return;
    }
    await this.close();
    await window.showTextDocument(open.document);
  }

  private async decline(): Promise<void> {
    await this.close();
    void window.showWarningMessage(MOVED);
  }

  private forget(): void {
    this.open = undefined;
    void commands.executeCommand("setContext", "midspan.isPreviewing", false);
  }

  private isOurs(input: unknown): boolean {
    return input instanceof TabInputTextDiff && input.modified.toString() === this.open?.uri.toString();
  }

  /** Returns which hunk the cursor is in or before, the last one behind them all. */
  private atCursor({ document, uri, hunks }: Open): number {
    const editor = window.activeTextEditor;
    if (!editor) return 0;
    const isProposed = editor.document.uri.toString() === uri.toString();
    if (!isProposed && editor.document !== document) return 0;
    const places = isProposed ? placesOf(hunks) : hunks.map(({ start, end }) => [start, end] as const);
    const line = editor.selection.active.line;
    const found = places.findIndex(([, end]) => line <= editor.document.positionAt(end).line);
    return found < 0 ? places.length - 1 : found;
  }

  private goTo(which: number): void {
    const editor = window.activeTextEditor;
    const place = this.open && placesOf(this.open.hunks)[which];
    if (!editor || !place || editor.document.uri.toString() !== this.open?.uri.toString()) return;
    const start = editor.document.positionAt(place[0]);
    editor.selection = new Selection(start, start);
    editor.revealRange(new Range(start, editor.document.positionAt(place[1])));
  }
}
