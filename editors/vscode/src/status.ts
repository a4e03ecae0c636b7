/** The item in the status bar: what the last answer was, and why nothing appeared. */
import { type StatusBarItem, ThemeColor } from "vscode";

/** The body of the server's `midspan/status`; "starting" is this extension's own. */
export interface Status {
  readonly state: keyof typeof LOOKS;
  readonly reason?: string | null;
}

/** Icon and words of each state. */
const LOOKS = {
  starting: ["loading~spin", "is starting"],
  ready: ["sparkle", "is ready"],
  silent: ["dash", "has no suggestion"],
  off: ["circle-slash", "is off"],
  failed: ["error", "failed"],
} as const;

export function show(item: StatusBarItem, { state, reason }: Status): void {
  const [icon, words] = LOOKS[state];
  const isFailed = state === "failed";
  item.text = `$(${icon}) Midspan`;
  item.tooltip = `Midspan ${words}${reason ? `: ${reason}` : ""}\nClick to ${isFailed ? "show the log" : "switch it on or off"}.`;
  item.command = isFailed ? "midspan.showLog" : "midspan.toggle";
  item.backgroundColor = isFailed ? new ThemeColor("statusBarItem.errorBackground") : undefined;
  item.show();
}
