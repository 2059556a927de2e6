// A translation model of transduce in a browser or in Node: the folder that `transduce export --to web` wrote.

import { EngineError, Translator } from "./client.js";

Translator.newWorker = () => new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
Translator.local = () => import("./local.js"); // without such workers, as in Node

export { EngineError, Translator };
