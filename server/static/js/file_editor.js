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
  const upload = document.getElementById("upload");
  upload?.addEventListener("change", async () => {
    upload.setCustomValidity("");
    const [file] = upload.files;
    if (!file) return;
    try {
      editor.value = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    } catch { // what was written so far is not lost to a file that is not text
      upload.setCustomValidity(`${file.name} is not a text file. Choose another; the text above stays as it is.`);
      upload.reportValidity();
    }
  });
}
