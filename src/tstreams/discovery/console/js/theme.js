// Runs before the first paint, so that a remembered theme does not flash. The switch is in settings.js.
(() => {
  try {
    const theme = localStorage.getItem("tstreams.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be forbidden: then the theme is the system's.
  }
})();
