// Makes a key, and shows it once.
"use strict";

(() => {
  const form = document.getElementById("new-key-form");
  if (!form) return;
  const made = document.getElementById("made-key");
  const secret = document.querySelector("#made-key-secret code");
  const problem = form.querySelector("[data-problem]");
  const DAY = 24 * 60 * 60 * 1000;

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (form.hasAttribute("aria-busy")) return;
    const fields = new FormData(form);
    const json = { name: fields.get("name"), scopes: fields.getAll("scopes") };
    if (fields.get("days")) json.expires_at = new Date(Date.now() + Number(fields.get("days")) * DAY).toISOString();
    problem.textContent = "";
    form.setAttribute("aria-busy", "true");
    try {
      const answer = await (await atoll.call("/ui/v1/keys", { json })).json();
      form.reset();
      document.getElementById("new-key").close();
      secret.textContent = answer.key;
      made.showModal();
    } catch (error) {
      problem.textContent = atoll.words(error);
    } finally {
      form.removeAttribute("aria-busy");
    }
  });

  made.addEventListener("close", () => {
    secret.textContent = "";
  });
})();
