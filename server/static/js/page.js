// What every page does beyond HTML: the theme, times in the reader's own zone, one key, the account menu.
"use strict";

(() => {
  const root = document.documentElement;
  root.classList.add("js");

  // Theme: auto follows the device; the choice lives in a cookie, so that the server renders it at once.
  const THEMES = ["auto", "light", "dark"];
  const ICONS = { auto: "monitor", light: "sun", dark: "moon" };
  const button = document.getElementById("theme");
  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const next = THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length];
      root.dataset.theme = next;
      document.cookie = `lethe_theme=${next}; path=/; max-age=31536000; samesite=lax`;
      const use = button.querySelector("use");
      use.setAttribute("href", use.getAttribute("href").replace(/#.*/, `#${ICONS[next]}`));
      button.setAttribute("aria-label", `Theme: ${next}. Change`);
      document.dispatchEvent(new CustomEvent("lethe:theme"));
    });
  }

  // Times.
  const UNITS = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60]];
  const words = new Intl.RelativeTimeFormat("en", { numeric: "always" });
  const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
  const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long" });

  const relative = (seconds) => {
    const unit = UNITS.find(([, size]) => Math.abs(seconds) >= size);
    if (!unit) return seconds <= 0 ? "just now" : "in less than a minute";
    return words.format(Math.trunc(seconds / unit[1]), unit[0]);
  };
  const countdown = (seconds) => {
    const left = Math.max(0, Math.round(seconds));
    const [days, hours, minutes] = [Math.floor(left / 86400), Math.floor(left / 3600) % 24, Math.floor(left / 60) % 60];
    const parts = [[days, "d"], [hours, "h"], [minutes, "min"], [left % 60, "s"]];
    const first = parts.findIndex(([amount]) => amount);
    return first < 0 ? "0 s" : parts.slice(first, first + 2).map(([amount, unit]) => `${amount} ${unit}`).join(" ");
  };
  const write = (element) => {
    const moment = new Date(element.dateTime);
    if (Number.isNaN(moment.getTime())) return;
    const seconds = (moment.getTime() - Date.now()) / 1000;
    const text = { relative, countdown }[element.dataset.time]?.(seconds) ?? exact.format(moment);
    if (element.textContent !== text) element.textContent = text;
    if (element.dataset.written === element.dateTime) return;
    element.dataset.written = element.dateTime;
    element.title = full.format(moment);
  };
  const writeAll = (which = "time[data-time]") => document.querySelectorAll(which).forEach(write);
  writeAll();
  for (const note of document.querySelectorAll("[data-zone]")) {
    note.textContent = `Times are in your own zone, ${exact.resolvedOptions().timeZone}.`;
  }
  setInterval(writeAll, 1000, 'time[data-time="countdown"]');
  setInterval(writeAll, 30000);
  // A long board grows by a page at a time: only what is new is written then.
  document.addEventListener("htmx:after:swap", () => writeAll("time[data-time]:not([data-written])"));

  // On a narrow screen the tabs scroll: the present one is in sight.
  document.querySelector(".tab[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // What scrolls by itself must be reachable with the keyboard.
  const letScrollersBeReached = () => {
    for (const box of document.querySelectorAll(".table-wrap, pre, .math.block")) {
      if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
    }
  };
  letScrollersBeReached();
  window.addEventListener("resize", letScrollersBeReached);
  document.addEventListener("htmx:after:swap", letScrollersBeReached);
  document.addEventListener("toggle", letScrollersBeReached, true); // what was folded had no size; this event does not bubble

  // A box at the head of a list chooses every line of it.
  for (const all of document.querySelectorAll("input[data-chooses]")) {
    all.hidden = false;
    const boxes = [...all.closest("form").querySelectorAll(`input[name="${all.dataset.chooses}"]`)];
    all.addEventListener("change", () => boxes.forEach((box) => (box.checked = all.checked)));
    all.form.addEventListener("change", () => {
      const chosen = boxes.filter((box) => box.checked).length;
      all.checked = chosen === boxes.length;
      all.indeterminate = chosen > 0 && chosen < boxes.length;
    });
  }

  // What is sought stands in the address, so that it can be kept and sent on.
  document.addEventListener("input", ({ target }) => {
    if (!target.matches('form[role="search"] input[hx-get]')) return;
    const address = new URL(target.form.action);
    for (const [name, value] of new FormData(target.form)) if (value) address.searchParams.set(name, value);
    history.replaceState(history.state, "", address);
  });

  // "m" goes to the reader's own line on a leaderboard.
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key !== "m" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    document.getElementById("to-own")?.click();
  });

  // Escape hides what a word means, until the next word is pointed at.
  const notes = document.documentElement.classList;
  document.addEventListener("keydown", (event) => event.key === "Escape" && notes.add("notes-off"));
  for (const kind of ["pointerover", "focusin"])
    document.addEventListener(kind, ({ target }) => target.matches?.(".noted") && notes.remove("notes-off"));

  // The account menu closes when one clicks elsewhere or presses Escape.
  const menus = () => document.querySelectorAll("details.menu[open]");
  document.addEventListener("click", (event) => menus().forEach((menu) => menu.contains(event.target) || (menu.open = false)));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menus().forEach((menu) => {
      menu.open = false;
      menu.querySelector("summary").focus();
    });
  });
})();
