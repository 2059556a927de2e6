// Bundles src/ into the static files of the Python package. The digest in the first line of page.js allows a test without
// npm to check that the files were built from the current sources.
import { createHash } from "node:crypto";
import { copyFileSync, readdirSync, readFileSync } from "node:fs";
import { build } from "esbuild";

const out = "../src/transduce/inspect/static";
const site = "../src/transduce/web/static";
const sources = [...["src", "package/src"].flatMap((folder) => readdirSync(folder).map((name) => `${folder}/${name}`)), "build.mjs", "package-lock.json"].sort();
const digest = createHash("sha256");
for (const path of sources) digest.update(`${path}\n`).update(readFileSync(path));

const options = {
  bundle: true,
  external: ["node:*"], // used only in Node
  minify: true,
  format: "iife", // a module would not load from a folder on disk
  target: ["chrome123", "firefox120", "safari17.5"],
  charset: "utf8",
  legalComments: "none",
  banner: { js: `// built from web/ ${digest.digest("hex")}` },
};
await build({ ...options, entryPoints: ["src/page.js", "src/page.css"], outdir: out });
// The worker and the service worker of the pages that `transduce export --to web` writes.
await build({ ...options, entryPoints: { worker: "src/site_worker.js", "service-worker": "src/service_worker.js" }, outdir: site });
copyFileSync("src/index.html", `${out}/index.html`);
