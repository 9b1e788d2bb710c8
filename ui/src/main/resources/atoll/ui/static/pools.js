// Charts of the pools' last minutes. They follow the page's live regions.
"use strict";

(() => {
  const template = document.getElementById("pools-template");
  const minutes = document.getElementById("pools-minutes");
  const note = document.getElementById("pools-note");
  const PERIOD = 5000;
  let pools = [];
  let charts = [];

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function line(label, name, points, more = {}) {
    return { label, stroke: color(name), width: 2, points: { show: points, size: 5 }, ...more };
  }

  function draw(id, data, series) {
    const place = document.getElementById(id);
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "12px sans-serif" };
    const most = Math.max(1, ...data.slice(1).flat().filter((value) => value !== null));
    const chart = new uPlot(
      {
        width: place.clientWidth,
        height: 180,
        cursor: { drag: { x: false, y: false } },
        // One sample alone would be drawn over no time at all.
        scales: { x: { range: (_, from, to) => [Math.min(from, to - 300), to] }, y: { range: [0, most * 1.1] } },
        axes: [axis, { ...axis, size: 44 }],
        series: [{ label: "At", value: (_, at) => (at === null ? "–" : new Date(at * 1000).toISOString().slice(11, 16)) }, ...series],
        tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
        fmtDate: () => (date) => `${String(date.getHours()).padStart(2, "0")}:${String(date.getMinutes()).padStart(2, "0")}`,
      },
      data,
      place,
    );
    charts.push(chart);
  }

  // Percentiles can't be added up: of several pools the slowest is shown.
  const worst = (a, b) => (a === null ? b : b === null ? a : Math.max(a, b));

  function byMinute() {
    const rows = new Map();
    for (const pool of pools) {
      if (template.value && pool.template !== template.value) continue;
      for (const minute of pool.history) {
        const at = Date.parse(minute.at) / 1000;
        const row = rows.get(at) ?? { p50: null, p99: null, hits: 0, misses: 0, depth: 0, ready: 0 };
        row.p50 = worst(row.p50, minute.took.p50_ms ?? null);
        row.p99 = worst(row.p99, minute.took.p99_ms ?? null);
        row.hits += minute.hits;
        row.misses += Object.values(minute.misses).reduce((sum, one) => sum + one, 0);
        row.depth += minute.depth;
        row.ready += minute.ready;
        rows.set(at, row);
      }
    }
    return rows;
  }

  function show() {
    charts.forEach((chart) => chart.destroy());
    charts = [];
    const rows = byMinute();
    const times = [...rows.keys()].sort((a, b) => a - b);
    const of = (name) => times.map((at) => rows.get(at)[name]);
    const points = times.length < 60;
    note.textContent = times.length ? "Times are UTC." + (template.value ? "" : " Of all pools, p50 and p99 are those of the slowest.") : "Nothing was measured in this time yet.";
    draw("chart-latency", [times, of("p50"), of("p99")], [line("p50", "--accent", points), line("p99", "--warn", points)]);
    draw("chart-taken", [times, of("hits"), of("misses")], [line("Hits", "--accent", points), line("Cold starts", "--bad", points)]);
    draw("chart-depth", [times, of("ready"), of("depth")], [line("Ready", "--accent", points), line("Depth", "--muted", points, { dash: [4, 4] })]);
  }

  async function load() {
    try {
      const answer = await atoll.call(`/ui/v1/pools?minutes=${minutes.value}`);
      pools = (await answer.json()).items;
      show();
    } catch (error) {
      note.textContent = atoll.words(error);
    }
  }

  let waiting = false;
  document.addEventListener("atoll:changed", () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => {
      waiting = false;
      load();
    }, PERIOD);
  });
  template.addEventListener("change", show);
  minutes.addEventListener("change", load);
  document.addEventListener("atoll:theme", show);
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (width === window.innerWidth) return;
    width = window.innerWidth;
    show();
  });
  load();
})();
