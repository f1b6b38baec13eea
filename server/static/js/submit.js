// Drag and drop, and the name of the chosen file. Without this the plain file field works as well.
"use strict";

(() => {
  const drop = document.getElementById("drop");
  const input = document.getElementById("file");
  const chosen = document.getElementById("chosen");
  const form = document.getElementById("submit-form");

  const show = () => {
    const file = input.files[0];
    chosen.textContent = file ? `${file.name}, ${(file.size / 1024).toFixed(1)} KiB` : "";
    drop.classList.toggle("has-file", Boolean(file));
  };
  input.addEventListener("change", show);
  for (const name of ["dragenter", "dragover"]) {
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.add("is-over");
    });
  }
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("is-over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length) {
      input.files = event.dataTransfer.files;
      show();
    }
  });
  form.addEventListener("submit", () => {
    const button = form.querySelector("button[type=submit]");
    button.disabled = true;
    button.lastChild.textContent = "Sending…";
  });
  window.addEventListener("pageshow", () => {
    const button = form.querySelector("button[type=submit]");
    if (button.lastChild.textContent === "Sending…") {
      button.disabled = false;
      button.lastChild.textContent = "Submit";
    }
  });
  show();
})();
