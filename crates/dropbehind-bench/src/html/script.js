"use strict";
// Everything is readable without this: it hides lines, and opens what is folded.
for (const section of document.querySelectorAll(".scenario")) {
  for (const box of section.querySelectorAll(".legend input")) {
    const show = () => {
      for (const line of section.querySelectorAll("polyline[data-mode]")) {
        if (line.dataset.mode === box.value) {
          line.style.display = box.checked ? "" : "none";
        }
      }
    };
    box.addEventListener("change", show);
    show();
  }
}
for (const button of document.querySelectorAll("button[data-open]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    for (const part of document.querySelectorAll("main details")) {
      part.open = button.dataset.open === "yes";
    }
  });
}
