// Writes the settings of the language server into package.json, from the server's own schema and the words below.
// With --check it writes nothing and fails when package.json says something else.
import { readFileSync, writeFileSync } from "node:fs";

/** What a user reads in the settings editor; the order is that of the editor. */
const WORDS = {
  enabled: "Whether Midspan suggests anything.",
  disabled_languages: "Language ids in which Midspan suggests nothing, such as `markdown`.",
  checkpoint: "Path of a checkpoint folder. `null`: the checkpoint that ships with Midspan.",
  max_tokens:
    "Longest suggestion, in tokens. Twice as long where you ask for several lines; decoding time grows with it.",
  eagerness: "How sure the model must be of what it shows: `reserved` suggests rarely, `eager` often.",
  min_confidence:
    "The same as a number from 0 to 1, which then counts instead of `#midspan.eagerness#`. 0 shows everything.",
  deadline_ms:
    "Milliseconds after which the best draft so far is the answer. VS Code itself gives up some 700 milliseconds after a letter was typed.",
  hole_marker: "What stands for a hole that Midspan fills.",
  excluded_globs: "Files in which nothing is completed. A list of yours replaces the default.",
  context_excluded_globs: "Files that are never read to complete another one. A list of yours replaces the default.",
  idle_minutes: "After so many minutes without a completion the engine leaves and gives its memory back.",
  popup:
    "Also offer suggestions in the completion menu, beside the ghost text. Read when the server starts: run `Midspan: Restart Language Server` after a change.",
  neighbour_characters:
    "Characters of similar code from other open files that the model is shown. The checkpoint that ships with Midspan has no room for them.",
  workspace_files:
    "Look for what the code at the cursor repeats in the other files of the workspace folder, too: those in the same language that Git does not ignore. They never leave this machine.",
};

/** Of the extension itself: where the server is, and what it is told of. */
const OWN = {
  "midspan.path": {
    type: "string",
    default: "",
    scope: "machine-overridable",
    markdownDescription:
      "Absolute path of the program `midspan`, such as `/home/me/midspan/.venv/bin/midspan`. Empty: the one on `PATH`, else the one in `.venv` of the workspace.",
  },
  "midspan.languages": {
    type: "array",
    items: { type: "string" },
    uniqueItems: true,
    default: ["python"],
    markdownDescription:
      "Language ids of the files that Midspan completes. The checkpoint that ships with Midspan knows Python.",
  },
};

const SCHEMA = new URL("../../server/midspan_server/settings.schema.json", import.meta.url);
const MANIFEST = new URL("package.json", import.meta.url);

function declared() {
  const { properties } = JSON.parse(readFileSync(SCHEMA, "utf8"));
  const known = Object.keys(WORDS).filter((key) => key in properties);
  const wordless = Object.keys(properties).filter((key) => !(key in WORDS));
  if (wordless.length) throw new Error(`settings.mjs has no words for ${wordless.join(", ")}; write them`);
  const theirs = known.map((key) => [`midspan.${key}`, { ...flat(properties[key]), markdownDescription: WORDS[key] }]);
  const all = [...Object.entries(OWN), ...theirs];
  return Object.fromEntries(all.map(([key, value], order) => [key, { ...value, order }]));
}

/** Returns a property as VS Code understands it: a list of types instead of a choice of schemas. */
function flat({ description, anyOf = [], ...schema }) {
  if (anyOf.length) Object.assign(schema, ...anyOf, { type: anyOf.map(({ type }) => type) });
  if (schema.enum) schema.type = "string";
  if (schema.type === "array") schema.uniqueItems = true;
  // A workspace must not choose what is loaded on a machine without its user's word.
  if (schema.type?.includes("null") && schema.type.includes("string")) schema.scope = "machine-overridable";
  return schema;
}

const manifest = JSON.parse(readFileSync(MANIFEST, "utf8"));
manifest.contributes.configuration.properties = declared();
const text = `${JSON.stringify(manifest, null, 2)}\n`;
if (!process.argv.includes("--check")) writeFileSync(MANIFEST, text);
else if (readFileSync(MANIFEST, "utf8") !== text) {
  console.error("package.json differs from settings.schema.json; run `npm run settings`");
  process.exitCode = 1;
}
