// The versions of the site, tables on phones, and buttons that copy code.
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll(":is(.highlight-text, .highlight-console, .highlight-default) pre"))
    block.innerHTML = block.innerHTML.replace(/(^|\s)(-[^\s<]+)/gm, '$1<span class="option">$2</span>'); // not broken at a hyphen
  document.querySelectorAll("table.docutils").forEach(nameCells);
  if (navigator.clipboard) document.querySelectorAll("div.highlight").forEach(addCopyButton); // not of a page from disk
  addVersions();
  for (const box of document.querySelectorAll(".highlight pre, .table-wrapper")) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; // arrow keys scroll
  for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.ariaLevel = "2";
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
});

/** On a phone, each row of a wide table becomes a list: the style sheet writes the name of its column before each cell. */
function nameCells(table) {
  const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent);
  const isLong = [...table.querySelectorAll("td")].some((cell) => cell.textContent.length > 100);
  if (names.length < 2 || (names.length === 2 && !isLong)) return;
  table.classList.add("wide");
  for (const row of table.querySelectorAll("tbody tr"))
    [...row.children].forEach((cell, n) => (cell.dataset.name = names[n]));
}

/** Of a block with prompts, only the commands are copied. */
function addCopyButton(block) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: "Copy" });
  button.addEventListener("click", async () => {
    const lines = block.querySelector("pre").textContent.trimEnd().split("\n");
    const commands = lines.filter((line) => line.startsWith("$ ")).map((line) => line.slice(2));
    await navigator.clipboard.writeText((commands.length ? commands : lines).join("\n"));
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  block.append(button);
}

/** A choice of versions, if the site has several: docs/versions.py lists them in the folder above that of this version. */
async function addVersions() {
  const root = new URL(document.documentElement.dataset.content_root, location.href);
  const versions = await fetch(new URL("../versions.json", root)).then((answer) => answer.json()).catch(() => []);
  const here = root.pathname.split("/").at(-2);
  const label = document.createElement("label");
  label.className = "versions";
  const shown = versions.includes(here) ? versions : [DOCUMENTATION_OPTIONS.VERSION];
  label.innerHTML = `version <select>${shown.map((name) => `<option${name === here ? " selected" : ""}>${name}</option>`).join("")}</select>`;
  label.lastChild.addEventListener("change", async ({ target }) => {
    const home = new URL(`../${target.value}/`, root);
    const page = new URL(location.href.slice(root.href.length), home);
    location = (await fetch(page, { method: "HEAD" })).ok ? page : home; // the page may be missing in another version
  });
  document.querySelector(".sidebar-brand")?.after(label);
}
