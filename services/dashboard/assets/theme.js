// theme: light, dark or as the system; a classic script, so that it runs before the first paint.
"use strict";
(() => {
  const NAMES = ["auto", "light", "dark"];
  const read = () => {
    try {
      const name = localStorage.getItem("tally-theme");
      return NAMES.includes(name) ? name : "auto";
    } catch {
      return "auto"; // storage is blocked, so the system's theme applies
    }
  };
  let theme = read();
  const apply = () => {
    document.documentElement.dataset.theme = theme;
    window.dispatchEvent(new Event("tally-theme"));
  };
  window.tallyTheme = {
    get name() {
      return theme;
    },
    next() {
      theme = NAMES[(NAMES.indexOf(theme) + 1) % NAMES.length];
      try {
        localStorage.setItem("tally-theme", theme);
      } catch {
        // The choice lasts until the page is left.
      }
      apply();
    },
  };
  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
})();
