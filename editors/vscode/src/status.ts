/** The item in the status bar: what Midspan does now, and why nothing appeared. */
import { type Disposable, StatusBarAlignment, ThemeColor, window } from "vscode";
import { type Off, whyOff } from "./switches";

/** The body of the server's `midspan/status`; "starting", "loading" and "busy" are this extension's own. */
export interface Report {
  readonly state: keyof typeof LOOKS;
  readonly reason?: string | null;
}

/** Icon and words of each state. */
const LOOKS = {
  starting: ["loading~spin", "is starting"],
  loading: ["loading~spin", "is loading the model"],
  ready: ["sparkle", "is ready"],
  busy: ["ellipsis", "is looking for a suggestion"],
  silent: ["dash", "has no suggestion"],
  off: ["circle-slash", "is off"],
  failed: ["error", "failed"],
} as const;

const READY: Report = { state: "ready" };

export class StatusItem implements Disposable {
  private readonly item = window.createStatusBarItem("midspan", StatusBarAlignment.Right);
  private localReport: Report | undefined;
  private lastAnswer: Report = READY;
  private percentage: number | undefined;
  private nBusy = 0;

  /** Takes what is known without the server, which then has nothing to say; undefined once it runs. */
  local(report: Report | undefined): void {
    this.localReport = report;
    this.percentage = undefined;
    this.lastAnswer = READY;
    this.draw();
  }

  /** Takes what the server says of its last answer. */
  report(report: Report): void {
    this.lastAnswer = report;
    this.draw();
  }

  /** Takes how much of the model is loaded, undefined when that is over. */
  loading(percentage: number | undefined): void {
    this.percentage = percentage;
    this.draw();
  }

  /** Forgets the last answer: the settings under which it was given have changed. */
  forget(): void {
    this.report(READY);
  }

  /** Shows that the server is at work until a request is answered. */
  async during<T>(request: PromiseLike<T> | T): Promise<T> {
    this.nBusy++;
    this.draw();
    try {
      return await request;
    } finally {
      this.nBusy--;
      this.draw();
    }
  }

  /** Forgets a silence: it was about the editor that the user has left. */
  turn(): void {
    if (this.lastAnswer.state === "silent") this.lastAnswer = READY;
    this.draw();
  }

  private draw(): void {
    const off = whyOff();
    const { state, reason } = this.current(off);
    const [icon, words] = LOOKS[state];
    const percentage = state === "loading" ? ` ${this.percentage}%` : "";
    const isFailed = state === "failed";
    const [command, deed] = isFailed ? ["showLog", "show the log"] : (off?.remedy ?? ["toggle", "switch it off"]);
    this.item.text = `$(${icon}) Midspan${percentage}`;
    this.item.tooltip = `Midspan ${words}${percentage}${reason ? `: ${reason}` : ""}\nClick to ${deed}.`;
    this.item.command = `midspan.${command}`;
    this.item.backgroundColor = isFailed ? new ThemeColor("statusBarItem.errorBackground") : undefined;
    this.item.show();
  }

  dispose(): void {
    this.item.dispose();
  }

  private current(off: Off | undefined): Report {
    if (this.localReport) return this.localReport;
    if (this.percentage !== undefined) return { state: "loading" };
    if (off) return { state: "off", reason: off.reason };
    return this.nBusy > 0 ? { state: "busy" } : this.lastAnswer;
  }
}
