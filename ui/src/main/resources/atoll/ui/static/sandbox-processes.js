// What runs and listens in a sandbox. Asked for when the page opens, by the button and when something has changed, and never of one
// that is paused: to look would wake it.
"use strict";

(() => {
  const root = document.getElementById("inside");
  const id = document.getElementById("sandbox").dataset.sandbox;
  const base = `/ui/v1/sandboxes/${id}`;
  const note = document.getElementById("inside-note");
  const portsNote = document.getElementById("ports-note");
  const MIB = 1048576;

  function cell(content, className = "") {
    const element = document.createElement("td");
    element.className = className;
    element.textContent = content;
    return element;
  }

  function running() {
    return document.getElementById("sandbox-head").dataset.state === "running";
  }

  async function kill(process) {
    if (!(await atoll.confirmed(`Kill ${process.pid} (${process.command})?`))) return;
    try {
      await atoll.call(`${base}/ps/${process.pid}:signal`, { json: { signal: "KILL" } });
      atoll.toast(`Killed ${process.pid}`);
    } catch (error) {
      atoll.toast(atoll.words(error), "bad");
    }
    await look();
  }

  function processRow(process) {
    const row = document.createElement("tr");
    const command = cell("", "break");
    const code = document.createElement("code");
    code.textContent = process.argv.length > 0 ? process.argv.join(" ").slice(0, 1000) : process.command;
    command.append(code);
    const actions = cell("", "actions");
    if (root.dataset.kill === "yes") {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "button small danger";
      button.textContent = "Kill";
      button.addEventListener("click", () => kill(process));
      actions.append(button);
    }
    row.append(
      cell(process.pid, "number"),
      command,
      cell(process.user || process.uid),
      cell(`${(process.cpu_ms / 1000).toFixed(2)} s`, "number"),
      cell(`${(process.memory_bytes / MIB).toFixed(1)} MiB`, "number"),
      actions,
    );
    return row;
  }

  /** Where browsers reach a port. Without a domain of the server's that is a name that means the visitor's own machine. */
  function address(port) {
    const loopback = location.hostname === "localhost" || location.hostname === "127.0.0.1" || location.hostname === "[::1]";
    const domain = root.dataset.domain || (loopback ? `localhost${location.port ? `:${location.port}` : ""}` : "");
    return domain && `${location.protocol}//${port}-${id.split("-").at(-1)}.${domain}/`;
  }

  function open(port) {
    const place = cell("", "break");
    const to = address(port);
    if (to) {
      const link = document.createElement("a");
      link.href = to;
      link.target = "_blank";
      link.rel = "noopener noreferrer";
      link.className = "id";
      link.textContent = to;
      place.append(link);
    } else place.textContent = "needs --domain at the server's start";
    return place;
  }

  function portRow(port) {
    const row = document.createElement("tr");
    const reach = cell("", "break");
    const code = document.createElement("code");
    code.textContent = `./atoll port ${id} ${port.port < 1024 ? port.port + 8000 : port.port}:${port.port}`;
    reach.append(code);
    row.append(cell(port.port, "number"), cell(port.address), cell(port.command, "break"), open(port.port), reach);
    return row;
  }

  async function look() {
    if (!running()) {
      note.textContent = "It does not run now.";
      portsNote.textContent = "";
      document.getElementById("inside-rows").replaceChildren();
      document.getElementById("ports-rows").replaceChildren();
      return;
    }
    try {
      const [processes, ports] = await Promise.all([atoll.call(`${base}/ps`), atoll.call(`${base}/ports`)]);
      document.getElementById("inside-rows").replaceChildren(...(await processes.json()).items.map(processRow));
      const listening = (await ports.json()).items;
      document.getElementById("ports-rows").replaceChildren(...listening.map(portRow));
      portsNote.textContent = listening.length === 0 ? "Nothing listens." : "";
      note.textContent = "";
    } catch (error) {
      note.textContent = atoll.words(error);
    }
  }

  document.getElementById("inside-refresh").addEventListener("click", look);
  document.addEventListener("atoll:changed", look);
  look();
})();
