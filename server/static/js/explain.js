// The slider of the picture that explains epsilon: what each position shows was computed by the server.
"use strict";

for (const figure of document.querySelectorAll("figure[data-separations]")) {
  const steps = JSON.parse(figure.dataset.separations);
  const slider = figure.querySelector("[data-slider]");
  const input = slider.querySelector("input");
  const show = () => {
    const [offset, threshold, epsilon, points] = steps[input.valueAsNumber];
    figure.querySelector("[data-moves]").setAttribute("transform", `translate(${offset} 0)`);
    const line = figure.querySelector("[data-threshold]");
    line.setAttribute("x1", threshold);
    line.setAttribute("x2", threshold);
    figure.querySelector("[data-epsilon]").textContent = epsilon;
    figure.querySelector("[data-points]").textContent = points;
    input.setAttribute("aria-valuetext", `epsilon ${epsilon}, ${points} points`);
  };
  slider.hidden = false;
  input.addEventListener("input", show);
  show(); // a browser that comes back to the page keeps the slider where it was
}
