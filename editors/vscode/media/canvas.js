// Draws each draft that the extension sends, every slot by its kind; the style sheet has their colours.

const caption = document.getElementById("caption");
const canvas = document.getElementById("canvas");
const slider = document.getElementById("slider");

function spanOf({ text, kind, entropy }) {
  const span = document.createElement("span");
  span.textContent = kind === "blank" ? "·" : text;
  span.classList.add(kind);
  if (kind !== "pin") span.title = `${kind}, ${entropy.toFixed(2)} nats`;
  return span;
}

/** The passes of the request that was told of last. */
let passes = [];

function draw({ uri, step, isLast, slots }) {
  const name = decodeURIComponent(uri.split("/").at(-1));
  const nFilled = slots.filter(({ kind }) => kind === "accepted").length;
  const nDoubtful = slots.filter(({ kind }) => kind !== "pin" && kind !== "blank").length - nFilled;
  const filled = `${nFilled} slot${nFilled === 1 ? "" : "s"} filled${nDoubtful ? `, ${nDoubtful} in doubt` : ""}`;
  caption.textContent = `${name}, pass ${step}${isLast ? " (last)" : ""}: ${filled}`;
  canvas.replaceChildren(...slots.map(spanOf));
}

window.addEventListener("message", ({ data: draft }) => {
  if (passes.at(-1)?.isLast) passes = [];
  passes.push(draft);
  slider.max = passes.length - 1; // before the value, which it bounds
  slider.value = slider.max;
  slider.disabled = passes.length < 2;
  draw(draft);
});

slider.addEventListener("input", () => draw(passes[slider.value]));
