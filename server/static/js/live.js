// A live part that cannot listen to its stream asks for itself every few seconds instead, until the stream is back.
"use strict";

(() => {
  const EVERY_MS = 3000;
  const polls = new Map();

  const ask = (element) => {
    if (!element.isConnected) return stop(element);
    htmx.ajax("GET", element.dataset.poll, { target: element, swap: "innerMorph" });
  };
  const start = (element) => {
    if (element?.dataset?.poll && !polls.has(element)) polls.set(element, setInterval(ask, EVERY_MS, element));
  };
  const stop = (element) => {
    clearInterval(polls.get(element));
    polls.delete(element);
  };

  document.addEventListener("htmx:sse:error", (event) => start(event.target));
  document.addEventListener("htmx:error", (event) => start(event.target)); // the stream could not be opened at all
  document.addEventListener("htmx:response:error", (event) => start(event.target));
  document.addEventListener("htmx:sse:after:connection", (event) => stop(event.target));

  // The last message of a stream: what stands around the live part (buttons, title) is as of then out of date.
  document.addEventListener("htmx:sse:close", (event) => {
    stop(event.target);
    if (event.detail.reason === "message") location.reload();
  });

  // The tab's title is told by the live part, which changes while the rest of the page stays.
  const retitle = () => {
    const title = document.querySelector("#live [data-title]")?.dataset.title;
    if (title) document.title = title;
  };
  const live = document.getElementById("live");
  if (live) new MutationObserver(retitle).observe(live, { subtree: true, childList: true, attributeFilter: ["data-title"] });
})();
