// Auto, light, dark: kept in this browser.
import { byId, say } from "./dom.js";

const ORDER = ["auto", "light", "dark"];

export function themeButton(changed) {
  const root = document.documentElement;
  const now = () => root.dataset.theme ?? "auto";
  const shown = () => say(byId("theme"), `Theme: ${now()}`);
  byId("theme").addEventListener("click", () => {
    const next = ORDER[(ORDER.indexOf(now()) + 1) % ORDER.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      localStorage.setItem("headrace-theme", next);
    } catch {
      // Then it lasts until the page is closed.
    }
    shown();
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  shown();
}
