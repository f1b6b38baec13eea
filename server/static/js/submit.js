// Drag and drop, the chosen file's name and size, and a refusal shown in place, so that the chosen file stays chosen.
// Without this the plain form works as well.
"use strict";

(() => {
  const drop = document.getElementById("drop");
  const input = document.getElementById("file");
  const chosen = document.getElementById("chosen");
  const form = document.getElementById("submit-form");

  const limit = (file) => Number(file.name.endsWith(".py") ? input.dataset.maxSourceMib : input.dataset.maxMib);
  const size = (bytes) => (bytes < 1 << 20 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`);

  const show = () => {
    const file = input.files[0];
    const isTooLarge = file && file.size > limit(file) * (1 << 20);
    const tooLarge = isTooLarge ? `The file has ${size(file.size)}; at most ${limit(file)} MiB are taken.` : "";
    input.setCustomValidity(tooLarge);
    chosen.textContent = file ? `${file.name}, ${size(file.size)}. ${tooLarge}` : "";
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
  const button = form.querySelector("button[type=submit]");
  const wait = (waits) => {
    button.disabled = waits || "usedUp" in button.dataset;
    button.lastChild.textContent = waits ? "Sending…" : "Submit";
  };
  const refuse = (refused) => {
    document.getElementById("refused")?.remove();
    form.before(refused);
    refused.tabIndex = -1;
    refused.focus();
  };
  // What was sent may have been taken all the same: to send it once more by itself would cost two of the quota.
  const doubt = (why) => {
    const told = document.createElement("div");
    told.id = "refused";
    told.setAttribute("role", "alert");
    told.className = "notice notice-bad";
    const own = document.createElement("a");
    own.href = form.action.replace(/submit$/, "submissions");
    own.textContent = "My submissions";
    const words = document.createElement("p");
    words.append(`${why} It may have been received: see `, own, " before you send it again.");
    told.append(words);
    refuse(told);
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    wait(true);
    try {
      const headers = { "X-Requested-With": "fetch" };
      const answer = await fetch(form.action, { method: "POST", body: new FormData(form), headers });
      if (answer.status === 204) return window.location.assign(answer.headers.get("Location"));
      if (answer.redirected) return window.location.assign(answer.url);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const refused = page.getElementById("refused") || page.querySelector("main .empty");
      if (refused) refuse(refused);
      else doubt(`The answer has the status ${answer.status}.`);
    } catch {
      doubt("The network failed, or the file has changed since it was chosen.");
    }
    wait(false);
  });
  window.addEventListener("pageshow", () => wait(false));
  show();
})();
