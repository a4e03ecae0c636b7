// Bundles the extension into dist/, with the licences of what the bundle contains.
import { readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const { metafile } = await build({
  entryPoints: ["src/extension.ts"],
  outfile: "dist/extension.js",
  bundle: true,
  minify: true,
  platform: "node",
  format: "cjs",
  target: "node20", // of VS Code 1.91, the oldest that package.json admits
  external: ["vscode"],
  metafile: true,
});

const packages = new Set(Object.keys(metafile.inputs).map((path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0]));
const notices = [...packages]
  .filter(Boolean)
  .sort()
  .map((folder) => `${folder.replace("node_modules/", "")}\n\n${licence(folder)}\n`);
writeFileSync("dist/NOTICES.txt", notices.join("\n"));

function licence(folder) {
  for (const name of ["LICENSE", "LICENSE.md", "License.txt", "LICENSE.txt"]) {
    try {
      return readFileSync(`${folder}/${name}`, "utf8").trim();
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
    }
  }
  throw new Error(`${folder} has no licence file that may be passed on; read its terms and name it in build.mjs`);
}
