// Draws every <figure data-chart> from its specification, in the page's colours, without eval.
"use strict";

(() => {
  const read = (name) => {
    // A custom property of the theme may be a light-dark() pair: let the browser resolve it on a real element.
    const probe = document.createElement("span");
    probe.className = `probe-${name}`;
    document.body.append(probe);
    const colour = getComputedStyle(probe).color;
    probe.remove();
    return colour;
  };

  const NARROW_PX = 480;

  const config = (width) => {
    const [text, soft, line, accent, warn, note] = ["text", "soft", "line", "accent", "warn", "note"].map(read);
    const font = getComputedStyle(document.body).fontFamily;
    return {
      font,
      background: "transparent",
      view: { stroke: null },
      axis: {
        labelColor: soft, titleColor: soft, gridColor: line, domainColor: line, tickColor: line,
        labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500,
      },
      legend: {
        labelColor: text, titleColor: soft, labelFontSize: 12, titleFontSize: 12,
        ...(width < NARROW_PX ? { orient: "bottom", columns: 2 } : {}),  // beside the lines it would take half of the width
      },
      title: { color: text },
      text: { color: soft },
      rule: { color: accent },
      bar: { color: accent },
      tick: { color: accent },
      line: { color: accent },
      circle: { color: accent },
      range: { category: [accent, warn, note, "#b279a2", "#6b9e3c", "#d4675f", "#8c8c8c", "#4c78a8", "#c9a227", "#7d6bd0", "#3f8f5f"] },
    };
  };

  const specificationOf = async (figure) => {
    const answer = await fetch(figure.dataset.chart, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(answer.statusText);
    return answer.text();
  };

  const draw = async (kept) => {
    const { figure } = kept;
    const place = figure.querySelector(".chart");
    figure.ariaBusy = "true";
    try {
      kept.specification ??= await specificationOf(figure);
      kept.embedded?.finalize();
      kept.embedded = await vegaEmbed(place, JSON.parse(kept.specification), {
        actions: false,
        ast: true,
        config: config(place.clientWidth),
        defaultStyle: false,
        expr: vegaExpressionInterpreter,
        renderer: "canvas",
        tooltip: { disableDefaultStyle: true },
      });
      const canvas = place.querySelector("canvas");
      canvas?.setAttribute("role", "img");
      canvas?.setAttribute("aria-label", figure.querySelector("figcaption")?.textContent.trim() ?? "figure");
    } catch {
      place.textContent = "The figure could not be drawn.";
    }
    figure.ariaBusy = "false";
  };

  // A figure asks for its specification once, and is drawn again in the colours of another theme. One drawing waits for
  // the one before it: of two at once, the older could finish last.
  const figures = [...document.querySelectorAll("figure[data-chart]")].map((figure) => ({ figure, last: Promise.resolve() }));
  const drawAll = () => figures.forEach((kept) => { kept.last = kept.last.then(() => draw(kept)); });
  drawAll();
  document.addEventListener("lethe:theme", drawAll);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
})();
