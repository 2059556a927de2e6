// Keeps the files of a site, so that it works without a network. VERSION and SHELL are written before this by the export.

const [CACHE, PIECES] = [`transduce ${VERSION}`, "transduce pieces"]; // the names of pieces follow from their content

addEventListener("install", (event) => {
  skipWaiting();
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(SHELL.map((path) => new Request(path, { cache: "reload" })))));
});

addEventListener("activate", (event) => {
  event.waitUntil((async () => {
    for (const name of await caches.keys()) if (name.startsWith("transduce ") && ![CACHE, PIECES].includes(name)) await caches.delete(name);
    await clients.claim();
  })());
});

addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || !request.url.startsWith(registration.scope)) return;
  event.respondWith((async () => {
    const kept = request.cache === "reload" ? undefined : await caches.match(request, { ignoreSearch: true });
    if (kept) return kept;
    const response = await fetch(request);
    if (response.ok && request.url.endsWith(".bin")) await caches.open(PIECES).then((cache) => cache.put(request, response.clone())).catch(() => {}); // storage may be full
    return response;
  })());
});
