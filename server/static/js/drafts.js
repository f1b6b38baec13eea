// What was typed into a form is kept in this tab while its reader logs in again, and put back afterwards.
"use strict";

(() => {
  const from = (() => {
    try {
      return new URL(document.referrer).pathname;
    } catch {
      return "";
    }
  })();
  const hasLoggedIn = from === "/login" || from === "/register";

  let told = false;
  for (const field of document.querySelectorAll("[data-draft]")) {
    const key = `lethe-draft:${field.dataset.draft}`;
    const kept = sessionStorage.getItem(key);
    sessionStorage.removeItem(key);
    if (hasLoggedIn && kept && kept !== field.value) {
      field.value = kept;
      field.closest("details")?.setAttribute("open", "");
      if (!told) tell(field);
      told = true;
    }
    window.addEventListener("pagehide", () => {
      if (field.value !== field.defaultValue || kept) sessionStorage.setItem(key, field.value);
    });
  }

  function tell(field) {
    const note = document.createElement("p");
    note.className = "hint";
    note.setAttribute("role", "status");
    note.textContent = "What you typed before you logged in is here again. A file has to be chosen again.";
    field.after(note);
  }
})();
