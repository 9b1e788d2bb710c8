// A terminal in a sandbox. The shell is a process of the sandbox: a reload attaches to it again and shows what it has printed.
"use strict";

(() => {
  const place = document.getElementById("terminal");
  if (!place) return;
  const id = document.getElementById("sandbox").dataset.sandbox;
  const state = document.getElementById("terminal-state");
  const KEPT = `atoll-terminal-${id}`;
  const NORMAL = 1000;
  const encoder = new TextEncoder();
  let process = sessionStorage.getItem(KEPT);
  let offset = 0;
  let socket = null;
  let opened = false;
  let ended = false;
  let waits = false;
  let wait = 500;

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function theme() {
    return { background: color("--bg-code"), foreground: color("--text"), cursor: color("--accent"), cursorAccent: color("--bg-code"), selectionBackground: color("--line-strong") };
  }

  const term = new Terminal({ fontSize: 13, fontFamily: color("--mono"), theme: theme(), scrollback: 10000, cursorBlink: false, minimumContrastRatio: 4.5 });
  const fit = new FitAddon.FitAddon();
  term.loadAddon(fit);
  term.open(place);
  fit.fit();
  document.addEventListener("atoll:theme", () => (term.options.theme = theme()));

  function show(text, kind) {
    state.textContent = text;
    state.className = `badge dot ${kind}`;
  }

  /** Of the sandbox; to attach to one that is paused would wake it. */
  function now() {
    return document.getElementById("sandbox-head").dataset.state;
  }

  function connect() {
    if (socket) return;
    waits = now() !== "running";
    if (waits) {
      show(`the sandbox is ${now()}`, "info");
      return;
    }
    const query = new URLSearchParams(process ? { process_id: process, offset } : { cols: term.cols, rows: term.rows, "env.TERM": "xterm-256color" });
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    opened = false;
    const mine = new WebSocket(`${scheme}://${location.host}/ui/v1/sandboxes/${id}/pty?${query}`);
    socket = mine;
    mine.binaryType = "arraybuffer";
    mine.onmessage = (event) => {
      if (socket !== mine) return;
      if (typeof event.data === "string") told(JSON.parse(event.data));
      else {
        offset += event.data.byteLength;
        term.write(new Uint8Array(event.data));
      }
    };
    mine.onclose = (event) => {
      if (socket !== mine) return;
      socket = null;
      if (ended) return;
      if (!opened && process) {
        // It is not there any more, or the server is not: ask which.
        attachedOrNew();
      } else if (event.code > 4000) {
        show(event.reason || "closed", "bad");
      } else again();
    };
  }

  function again() {
    show("reconnecting", "warn");
    setTimeout(connect, wait);
    wait = Math.min(wait * 2, 5000);
  }

  async function attachedOrNew() {
    try {
      await atoll.call(`/ui/v1/sandboxes/${id}/processes/${process}`);
      again();
    } catch (error) {
      if (error.status === 404) begin();
      else again();
    }
  }

  function told(message) {
    if (message.type === "started") {
      opened = true;
      wait = 500;
      process = message.process_id;
      sessionStorage.setItem(KEPT, process);
      show("connected", "good");
      resize();
      term.focus();
    } else if (message.type === "gap") {
      offset = message.offset + message.bytes;
    } else if (message.type === "exited") {
      ended = true;
      sessionStorage.removeItem(KEPT);
      show(`ended${message.exit_code === null || message.exit_code === undefined ? "" : `, exit code ${message.exit_code}`}`, "");
    }
  }

  function send(data) {
    if (socket?.readyState === WebSocket.OPEN) socket.send(data);
  }

  function resize() {
    fit.fit();
    send(JSON.stringify({ type: "resize", cols: term.cols, rows: term.rows }));
  }

  /** A shell of its own, in place of the one that was shown; that one runs on. */
  function begin() {
    const before = socket;
    socket = null;
    before?.close(NORMAL);
    process = null;
    offset = 0;
    ended = false;
    sessionStorage.removeItem(KEPT);
    term.reset();
    show("connecting", "");
    connect();
  }

  document.addEventListener("atoll:changed", () => {
    if (waits) connect();
  });
  term.onData((text) => send(encoder.encode(text)));
  term.onBinary((text) => send(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
  new ResizeObserver(() => resize()).observe(place);
  document.getElementById("terminal-new").addEventListener("click", begin);
  connect();
})();
