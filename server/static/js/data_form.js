// While a form is filled in, the fields that the server finds wrong are marked as such.
"use strict";

document.addEventListener("htmx:after:swap", () => {
  const check = document.getElementById("check");
  if (!check) return;
  const wrong = new Set([...check.querySelectorAll("[data-field]")].map((item) => item.dataset.field));
  for (const field of document.querySelectorAll("form [name].input")) {
    if (wrong.has(field.id)) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  }
});
