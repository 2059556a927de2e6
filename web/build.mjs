// Bundles src/ into the static files of the Python package. The digest in the first line of page.js allows a test without
// npm to check that the files were built from the current sources.
import { createHash } from "node:crypto";
import { copyFileSync, readdirSync, readFileSync } from "node:fs";
import { build } from "esbuild";

const out = "../src/transduce/inspect/static";
const sources = [...readdirSync("src").map((name) => `src/${name}`), "build.mjs", "package-lock.json"].sort();
const digest = createHash("sha256");
for (const path of sources) digest.update(`${path}\n`).update(readFileSync(path));

await build({
  entryPoints: ["src/page.js", "src/page.css"],
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife", // a module would not load from a folder on disk
  target: ["chrome123", "firefox120", "safari17.5"],
  charset: "utf8",
  legalComments: "none",
  banner: { js: `// built from web/ ${digest.digest("hex")}` },
});
copyFileSync("src/index.html", `${out}/index.html`);
