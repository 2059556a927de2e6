// The worker of a site that `transduce export --to web` wrote.

import "../package/src/worker.js";
