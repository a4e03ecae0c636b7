/** The panel that shows the canvas while it settles, step by step. */
import { type Disposable, Uri, ViewColumn, type WebviewPanel, window } from "vscode";
import { type LanguageClient, State } from "vscode-languageclient/node";
import type { Adapter } from "./adapter";
import { DRAFT, WATCH } from "./protocol";

export class CanvasPanel implements Disposable {
  private client: LanguageClient | undefined;
  private panel: WebviewPanel | undefined;

  constructor(
    private readonly adapter: Adapter,
    private readonly extensionUri: Uri,
  ) {}

  /** Listens to a client, and asks it for drafts while the panel is open. */
  attach(client: LanguageClient): void {
    this.client = client;
    client.onNotification(DRAFT, (draft) => void this.panel?.webview.postMessage(draft));
    client.onDidChangeState(({ newState }) => {
      if (newState === State.Running && this.panel) this.watch(true);
    });
  }

  open(): void {
    if (this.panel) return this.panel.reveal();
    if (!this.adapter.running) return;
    const media = Uri.joinPath(this.extensionUri, "media");
    const showing = { viewColumn: ViewColumn.Beside, preserveFocus: true };
    this.panel = window.createWebviewPanel("midspan.canvas", "Midspan Canvas", showing, {
      enableScripts: true,
      retainContextWhenHidden: true, // the page alone holds the passes; it is small
      localResourceRoots: [media],
    });
    this.panel.onDidDispose(() => {
      this.panel = undefined;
      this.watch(false);
    });
    this.panel.webview.html = this.page(this.panel, media);
    this.watch(true);
  }

  dispose(): void {
    this.panel?.dispose();
  }

  private watch(enabled: boolean): void {
    if (this.client?.state === State.Running)
      this.client.sendRequest(WATCH, { enabled }).catch((error: unknown) => this.adapter.log.error(String(error)));
  }

  private page({ webview }: WebviewPanel, media: Uri): string {
    const [style, script] = ["canvas.css", "canvas.js"].map((name) => webview.asWebviewUri(Uri.joinPath(media, name)));
    return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src ${webview.cspSource}; script-src ${webview.cspSource};">
<link rel="stylesheet" href="${style}">
<script defer src="${script}"></script>
<title>Midspan Canvas</title>
</head>
<body>
<p id="caption">Type, edit a selection or fill holes: the canvas appears here.</p>
<input id="slider" type="range" min="0" max="0" value="0" disabled aria-label="Pass of the model">
<pre id="canvas" aria-live="off"></pre>
<p id="legend"><span class="pin">pinned</span> <span class="accepted">accepted</span> <span class="draft sure">sure</span>
<span class="draft open">open</span> <span class="draft unsure">unsure</span> <span class="blank">blank</span></p>
</body>
</html>`;
  }
}
