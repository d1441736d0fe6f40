// Before anything is painted: the theme that was chosen, else that of the system.
(() => {
  try {
    const kept = localStorage.getItem("headrace-theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // Storage may be switched off; then the system decides.
  }
})();
