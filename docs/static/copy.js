// A button that copies a block of code; of a block with prompts, the commands only. Options of commands are not broken at a hyphen.
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll(":is(.highlight-text, .highlight-console, .highlight-default) pre"))
    block.innerHTML = block.innerHTML.replace(/(^|\s)(-[^\s<]+)/gm, '$1<span class="option">$2</span>');
  if (!navigator.clipboard) return; // a page from disk
  for (const block of document.querySelectorAll("div.highlight")) {
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
});
