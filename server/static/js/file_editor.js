// From a mistake in a competition file to its line in the text; a chosen file is put into the text.
"use strict";

{
  const editor = document.getElementById("text");
  for (const link of document.querySelectorAll("a[data-line]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const lines = editor.value.split("\n");
      const before = Number(link.dataset.line) - 1;
      const start = lines.slice(0, before).reduce((sum, line) => sum + line.length + 1, 0);
      editor.focus();
      editor.setSelectionRange(start, start + lines[before].length);
      editor.scrollTop = Math.max(0, before - 3) * parseFloat(getComputedStyle(editor).lineHeight);
    });
  }
  document.getElementById("upload")?.addEventListener("change", async ({ target }) => {
    if (target.files[0]) editor.value = await target.files[0].text();
  });
}
