/** One piece of a change, in offsets of the text that it belongs to. */

export interface Hunk {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** Returns a text with hunks carried out; they ascend and do not overlap. */
export function applied(text: string, hunks: readonly Hunk[]): string {
  let [result, at] = ["", 0];
  for (const { start, end, text: piece } of hunks) {
    result += text.slice(at, start) + piece;
    at = end;
  }
  return result + text.slice(at);
}

/** Returns where each hunk starts and ends in the text with all of them carried out. */
export function placesOf(hunks: readonly Hunk[]): (readonly [number, number])[] {
  let shift = 0;
  return hunks.map(({ start, end, text }) => {
    const place = [start + shift, start + shift + text.length] as const;
    shift += text.length - (end - start);
    return place;
  });
}

/** Returns the other hunks as they lie once one of them is carried out. */
export function without(hunks: readonly Hunk[], taken: Hunk): Hunk[] {
  const growth = taken.text.length - (taken.end - taken.start);
  return hunks
    .filter((hunk) => hunk !== taken)
    .map((hunk) =>
      hunk.start < taken.end ? hunk : { ...hunk, start: hunk.start + growth, end: hunk.end + growth },
    );
}
