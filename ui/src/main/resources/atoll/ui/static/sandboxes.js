// Filters of a list count when they are chosen.
"use strict";

document.querySelector("[data-filters]")?.addEventListener("change", (event) => {
  if (event.target instanceof HTMLSelectElement) event.currentTarget.requestSubmit();
});
