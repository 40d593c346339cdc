"use strict";

// A guide line and a line of figures that follow the pointer over a chart.
for (const chart of document.querySelectorAll("svg[data-x]")) {
  const places = JSON.parse(chart.dataset.x);
  const texts = JSON.parse(chart.dataset.readout);
  const readout = chart.parentElement.querySelector(".readout");
  const guide = document.createElementNS("http://www.w3.org/2000/svg", "path");
  guide.setAttribute("class", "guide");
  chart.prepend(guide);

  const read = (event) => {
    const box = chart.getBoundingClientRect();
    const view = chart.viewBox.baseVal;
    const x = ((event.clientX - box.left) / box.width) * view.width;
    let nearest = 0;
    places.forEach((place, index) => {
      if (Math.abs(place - x) < Math.abs(places[nearest] - x)) nearest = index;
    });
    guide.setAttribute("d", `M${places[nearest]} 12V${view.height - 40}`);
    readout.textContent = texts[nearest];
  };
  chart.addEventListener("pointermove", read);
  chart.addEventListener("pointerdown", read); // a tap moves nothing

  chart.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "touch") return; // a finger is gone at once, what it asked stays
    guide.removeAttribute("d");
    readout.textContent = "";
  });
}

// A copy button beside every command; where the clipboard is closed, the text is selected instead.
for (const block of document.querySelectorAll(".command")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    const code = block.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  block.append(button);
}
