// The translator of the home page, which `make docs` writes into try/: it is loaded only on the reader's click.
document.addEventListener("DOMContentLoaded", () => {
  const place = document.querySelector(".try");
  if (!place || !location.protocol.startsWith("http")) return; // a page from disk has no workers
  place.hidden = false;
  place.querySelector("button").addEventListener("click", () => {
    const view = new URLSearchParams({ text: "The animal didn't cross the street because it was too tired.", to: "de", sentence: 0, stack: "encoder", question: "it>animal" });
    place.replaceChildren(Object.assign(document.createElement("iframe"), { src: `try/index.html#${view}`, title: "Translate and look inside" }));
  });
});
