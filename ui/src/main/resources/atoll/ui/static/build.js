// The log of a build, as it is written.
"use strict";

(() => {
  const log = document.getElementById("build-log");
  const state = document.getElementById("build-state");
  const progress = document.getElementById("build-progress");
  const colors = { ready: "good", failed: "bad", queued: "info", building: "info" };
  const MOST_LINES = 5000;

  function show(name) {
    state.dataset.state = name;
    state.textContent = name;
    state.className = `badge dot ${colors[name] ?? ""}`;
  }

  function print(text, kind) {
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const line = document.createElement("span");
    line.className = kind;
    line.textContent = atollResults.plain(text);
    log.append(line);
    while (log.childElementCount > MOST_LINES) log.firstElementChild.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  function follow() {
    log.replaceChildren();
    const source = new EventSource(log.dataset.log);
    source.addEventListener("step", (event) => {
      const step = JSON.parse(event.data);
      if (state.dataset.state === "queued") show("building");
      progress.textContent = `Step ${step.number} of ${step.total}`;
      print(`[${step.number}/${step.total}] ${step.text}${step.cached ? " (cached)" : ""}\n`, "log-step");
    });
    source.addEventListener("log", (event) => {
      const piece = JSON.parse(event.data);
      print(piece.text, piece.stream === "stderr" ? "log-error" : "");
    });
    source.addEventListener("progress", (event) => {
      const now = JSON.parse(event.data);
      const done = (now.done_bytes / 1048576).toFixed(1);
      progress.textContent = now.total_bytes ? `${now.what}: ${done} of ${(now.total_bytes / 1048576).toFixed(1)} MiB` : `${now.what}: ${done} MiB`;
    });
    source.addEventListener("done", (event) => {
      const build = JSON.parse(event.data);
      source.close();
      show(build.state);
      progress.textContent = "";
      document.getElementById("build-problem").textContent = atollResults.plain(build.failure?.message ?? build.error?.message ?? "");
      for (const [id, hidden] of [["build-cancel", true], ["build-again", false], ["build-retry", false]]) {
        const button = document.getElementById(id);
        if (button) button.hidden = hidden;
      }
    });
    // A stream that broke off begins anew, with the whole log.
    source.onerror = () => {
      source.close();
      setTimeout(follow, 1500);
    };
  }

  show(state.dataset.state);
  follow();
})();
