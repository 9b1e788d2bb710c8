// CPU, memory and disk of a sandbox, as they are sampled.
"use strict";

(() => {
  const id = document.getElementById("sandbox").dataset.sandbox;
  const PERIOD = 2000;
  const MOST = 300;
  const HEIGHT = 160;
  const MIB = 1048576;
  const kinds = {
    cpu: { of: (one) => one.cpu_percent, limit: () => null, text: (value) => `${value.toFixed(value < 10 ? 1 : 0)} %` },
    memory: { of: (one) => one.memory_bytes / MIB, limit: (one) => one.memory_limit_bytes / MIB, text: mebibytes },
    disk: { of: (one) => one.disk_bytes / MIB, limit: (one) => one.disk_limit_bytes / MIB, text: mebibytes },
  };
  const charts = {};
  let samples = [];

  function mebibytes(value) {
    return value >= 1024 ? `${(value / 1024).toFixed(1)} GiB` : `${value.toFixed(value < 10 ? 1 : 0)} MiB`;
  }

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  /** A minute at least, the newest sample at the right; uPlot makes nothing of a single one. */
  function span(low, high) {
    const end = high ?? Date.now() / 1000;
    return [Math.min(low ?? end, end - 60), end];
  }

  function make(name) {
    const element = document.getElementById(`chart-${name}`);
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
    return new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        cursor: { drag: { x: false, y: false } },
        legend: { show: false },
        scales: { x: { range: (_, low, high) => span(low, high) }, y: { range: (_, low, high) => [0, Math.max(1, (high ?? 0) * 1.15)] } },
        axes: [{ ...axis, space: 80, size: 28, values: (_, times) => times.map((time) => new Date(time * 1000).toISOString().slice(11, 19)) }, { ...axis, size: 62, space: 36, values: (_, values) => values.map((value) => kinds[name].text(value)) }],
        series: [{}, { stroke: color("--accent"), fill: color("--accent-soft"), width: 1.5, points: { show: false } }],
      },
      [[], []],
      element,
    );
  }

  /** Empty axes would tell nothing: of a sandbox that ended long ago, or at once, there is no sample. */
  function nothing() {
    const state = document.getElementById("sandbox-head").dataset.state;
    const none = samples.length === 0 && state === "ended";
    const note = document.getElementById("usage-note");
    document.getElementById("usage").hidden = none;
    note.hidden = !none;
    note.textContent = none ? "No use of CPU, memory and disk was measured in the last 15 minutes." : "";
    return none;
  }

  function draw() {
    if (nothing()) return;
    const times = samples.map((one) => Date.parse(one.at) / 1000);
    for (const name of Object.keys(kinds)) {
      charts[name] ??= make(name);
      charts[name].setData([times, samples.map(kinds[name].of)]);
      const last = samples.at(-1);
      const value = last && kinds[name].of(last);
      const limit = last && kinds[name].limit(last);
      document.getElementById(`now-${name}`).textContent =
        value === undefined || value === null ? "–" : kinds[name].text(value) + (limit ? ` of ${kinds[name].text(limit)}` : "");
    }
  }

  async function look() {
    if (!document.hidden) {
      try {
        const from = new Date(Date.now() - 15 * 60 * 1000).toISOString();
        const answer = await atoll.call(`/ui/v1/sandboxes/${id}/metrics?limit=${MOST}&from=${encodeURIComponent(from)}`);
        const list = await answer.json();
        samples = list.items.sort((a, b) => a.at.localeCompare(b.at));
        if (samples.length === 0 && list.current) samples = [list.current];
        draw();
      } catch {
        // A server that restarts: the next look tells.
      }
    }
    setTimeout(look, PERIOD);
  }

  function again() {
    for (const name of Object.keys(charts)) {
      charts[name].destroy();
      delete charts[name];
    }
    draw();
  }

  document.addEventListener("atoll:theme", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  addEventListener("resize", () => {
    for (const name of Object.keys(charts)) charts[name].setSize({ width: document.getElementById(`chart-${name}`).clientWidth, height: HEIGHT });
  });
  look();
})();
