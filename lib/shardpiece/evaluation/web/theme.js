"use strict";
// The switch between the system's theme, light and dark. Nothing is kept: the next visit begins with the system's.
const Theme = (() => {
  const listeners = [];
  const start = () => {
    const select = document.getElementById("theme");
    select.addEventListener("change", () => {
      if (select.value === "auto") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = select.value;
      for (const listener of listeners) listener();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const listener of listeners) listener();
    });
  };
  // What a custom property with a colour is now, as rgb(...).
  const color = (name) => {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };
  return { start, color, changed: (listener) => listeners.push(listener) };
})();
