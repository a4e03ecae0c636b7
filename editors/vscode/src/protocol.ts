/** The server's own requests, as server/PROTOCOL.md describes them. */
import type { Position, Range, TextEdit } from "vscode-languageclient/node";

export const EDIT = "midspan/edit";
export const HOLES = "midspan/holes";
export const PRESETS = "midspan/editPresets";
export const WATCH = "midspan/watch";
export const DRAFT = "midspan/draft";

/** What code actions name; the server carries them out itself for clients without a preview. */
export const REQUEST_OF_COMMAND: Readonly<Record<string, typeof EDIT | typeof HOLES>> = {
  "midspan.applyEdit": EDIT,
  "midspan.applyHoles": HOLES,
};

export interface TextVersion {
  readonly uri: string;
  readonly version: number;
}

/** Asks for an edit or for filled holes. */
export interface Asked {
  readonly textDocument: TextVersion;
  readonly range?: Range;
  readonly positions?: readonly Position[];
  readonly preset?: string;
  readonly instruction?: string;
}

/** Answers either: one text edit a hunk, in ascending order, or why there is none. */
export interface Edited {
  readonly textDocument: TextVersion;
  readonly edits: readonly TextEdit[];
  readonly message?: string | null;
  readonly silence?: string | null;
}

/** Answers `midspan/editPresets`: what the checkpoint can do. */
export interface Abilities {
  readonly presets: readonly { readonly id: string; readonly title: string }[];
  readonly instructions: boolean;
}
