// A model of transduce in a browser or in Node: the folder that `transduce export --to web` wrote.

import { EngineError, Generator, Loaded, Translator } from "./client.js";

Loaded.newWorker = () => new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
Loaded.local = () => import("./local.js"); // without such workers, as in Node

export { EngineError, Generator, Translator };
