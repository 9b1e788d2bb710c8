// Before the first paint: the theme that was chosen, else what the system says.
(() => {
  const chosen = localStorage.getItem("atoll-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
