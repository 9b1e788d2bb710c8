// One execution: what it displayed; while it runs, what it says.
"use strict";

(() => {
  const page = document.getElementById("execution");
  const results = new atollResults.Results(document.getElementById("execution-results"));

  async function ended() {
    const response = await atoll.call(page.dataset.api);
    for (const result of (await response.json()).results ?? []) results.add(result);
  }

  async function running() {
    const printer = new atollResults.Printer(document.getElementById("execution-output"));
    const response = await atoll.call(`${page.dataset.api}/events`, { headers: { Accept: "text/event-stream" } });
    await atollResults.follow(response, printer, results);
    location.reload();
  }

  (page.dataset.running === "true" ? running() : ended()).catch((error) => atoll.toast(atoll.words(error), "bad"));
})();
