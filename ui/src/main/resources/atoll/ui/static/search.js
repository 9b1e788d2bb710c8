// A list that is searched while it is typed: htmx asks and puts the answer in, here its live regions are followed and failures shown.
"use strict";

(() => {
  const form = document.querySelector("[data-search]");
  const problem = form.querySelector("[data-problem]");

  form.addEventListener("htmx:configRequest", (event) => {
    // What is not asked for need not stand in the address.
    for (const [name, value] of [...event.detail.formData]) if (value === "") event.detail.formData.delete(name);
    event.detail.headers["Atoll-Script"] = "1";
  });

  form.addEventListener("htmx:beforeRequest", () => (problem.textContent = ""));

  // Another page has come, that of the login.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.status === 200 && !event.detail.serverResponse.includes('id="found"')) location.reload();
  });

  document.addEventListener("htmx:afterSettle", () => atoll.follow(document.getElementById("found").dataset.stream));

  form.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status === 401) return location.reload();
    try {
      problem.textContent = JSON.parse(event.detail.xhr.responseText).error.message;
    } catch {
      problem.textContent = `The server answered ${event.detail.xhr.status}.`;
    }
  });

  form.addEventListener("htmx:sendError", () => (problem.textContent = "The server can't be reached."));
})();
