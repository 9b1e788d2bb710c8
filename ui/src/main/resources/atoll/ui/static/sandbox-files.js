// The files of a sandbox: names and contents come from inside it and are shown as text only.
"use strict";

(() => {
  const root = document.getElementById("files");
  if (!root) return;
  const id = document.getElementById("sandbox").dataset.sandbox;
  const writable = root.dataset.writable === "yes";
  const base = `/ui/v1/sandboxes/${id}/files`;
  const MOST_SHOWN = 1048576;
  const MOST_ROWS = 1000;
  const pathInput = document.getElementById("files-path");
  const problem = document.getElementById("files-problem");
  const rows = document.getElementById("files-rows");
  const dialog = document.getElementById("file");
  const text = document.getElementById("file-text");
  const nameField = document.getElementById("file-name-field");
  const name = document.getElementById("file-name");
  const save = document.getElementById("file-save");
  let folder = "/";
  let openFile = null;

  function address(path, call = "", more = {}) {
    return `${base}${call}?${new URLSearchParams({ path, ...more })}`;
  }

  function join(parent, child) {
    return (parent.endsWith("/") ? parent : parent + "/") + child;
  }

  function make(tag, className, content) {
    const element = document.createElement(tag);
    element.className = className;
    if (content !== undefined) element.textContent = content;
    return element;
  }

  function size(bytes) {
    const units = ["B", "KiB", "MiB", "GiB"];
    let unit = 0;
    while (bytes >= 1024 && unit < units.length - 1) {
      bytes /= 1024;
      unit++;
    }
    return `${unit === 0 ? bytes : bytes.toFixed(1)} ${units[unit]}`;
  }

  function button(label, action, kind = "") {
    const element = make("button", `button small ${kind}`, label);
    element.type = "button";
    element.addEventListener("click", () => attempt(action));
    return element;
  }

  async function attempt(action) {
    problem.textContent = "";
    try {
      await action();
    } catch (error) {
      problem.textContent = atoll.words(error);
    }
  }

  function row(file) {
    const line = document.createElement("tr");
    const isFolder = file.type === "directory" || file.target_type === "directory";
    const link = make("button", "link-button file-link break", isFolder ? `${file.name}/` : file.name);
    link.type = "button";
    link.addEventListener("click", () => attempt(() => (isFolder ? open(file.path) : view(file))));
    const first = make("td", "file-cell");
    first.append(link);
    if (file.link_target !== null && file.link_target !== undefined) first.append(make("span", "muted break", ` → ${file.link_target}`));
    const actions = make("td", "actions");
    if (!isFolder && (file.type === "file" || file.target_type === "file")) {
      const download = make("a", "button small", "Download");
      download.href = address(file.path);
      download.download = file.name;
      actions.append(download);
    }
    if (writable) actions.append(button("Delete", () => remove(file, isFolder), "danger"));
    line.append(
      first,
      make("td", "number", isFolder ? "" : size(file.size)),
      make("td", "figure sandbox-nowrap", file.modified_at.slice(0, 19).replace("T", " ")),
      make("td", "sandbox-nowrap", `${file.owner || file.uid} ${file.mode}`),
      actions,
    );
    return line;
  }

  async function open(path) {
    const answer = await atoll.call(address(path, ":list", { hidden: "true", limit: MOST_ROWS }));
    const list = await answer.json();
    // What starts at the user's home folder is shown as what it is.
    if (!path.startsWith("/")) path = (await (await atoll.call(address(path, ":stat"))).json()).path;
    folder = path;
    pathInput.value = path;
    history.replaceState(null, "", `?path=${encodeURIComponent(path)}`);
    list.items.sort((a, b) => (a.type === "directory") - (b.type === "directory") === 0 ? a.name.localeCompare(b.name) : a.type === "directory" ? -1 : 1);
    rows.replaceChildren(...list.items.map(row));
    document.getElementById("files-more").textContent =
      list.items.length === 0 ? "The folder is empty." : list.next ? `The first ${list.items.length} are shown.` : "";
  }

  async function view(file) {
    const answer = await atoll.call(address(file.path, "", { length: MOST_SHOWN }));
    const bytes = new Uint8Array(await answer.arrayBuffer());
    const whole = file.type !== "file" || file.size <= bytes.length;
    let content;
    let binary = false;
    try {
      content = new TextDecoder("utf-8", { fatal: whole, ignoreBOM: true }).decode(bytes);
      binary = content.includes("\0");
    } catch {
      binary = true;
    }
    if (binary) content = hex(bytes.subarray(0, 4096));
    // A text field knows no other line ends than its own: what has others would be changed by saving.
    const kept = !binary && whole && !content.includes("\r");
    openFile = kept ? file.path : null;
    nameField.hidden = true;
    document.getElementById("file-title").textContent = file.path;
    document.getElementById("file-note").textContent = binary
      ? "No text: the first bytes, as numbers. Download it to see all."
      : whole
        ? kept
          ? ""
          : "It has line ends of Windows; it is shown, but can't be edited here."
        : `The first ${size(bytes.length)} of ${size(file.size)}.`;
    show(content, writable && kept);
  }

  function hex(bytes) {
    const lines = [];
    for (let at = 0; at < bytes.length; at += 16) {
      const part = [...bytes.subarray(at, at + 16)];
      const letters = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
      lines.push(`${at.toString(16).padStart(6, "0")}  ${part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47)}  ${letters}`);
    }
    return lines.join("\n");
  }

  function show(content, editable) {
    document.getElementById("file-problem").textContent = "";
    text.value = content;
    text.readOnly = !editable;
    save.hidden = !editable;
    dialog.showModal();
    text.setSelectionRange(0, 0);
  }

  async function write(path, body, more = {}) {
    await atoll.call(address(path, "", more), { method: "PUT", body, headers: { "Content-Type": "application/octet-stream" } });
  }

  async function remove(file, isFolder) {
    if (!(await atoll.confirmed(`Delete ${file.path}${isFolder && file.type === "directory" ? " and all that is in it" : ""}?`))) return;
    await atoll.call(address(file.path, "", file.type === "directory" ? { recursive: "true" } : {}), { method: "DELETE" });
    await open(folder);
  }

  save?.addEventListener("click", async () => {
    document.getElementById("file-problem").textContent = "";
    save.disabled = true;
    try {
      const path = openFile ?? join(folder, name.value);
      await write(path, new Blob([text.value]), openFile ? {} : { write: "create" });
      dialog.close();
      atoll.toast(`Saved ${path}`);
      await open(folder);
    } catch (error) {
      document.getElementById("file-problem").textContent = atoll.words(error);
    } finally {
      save.disabled = false;
    }
  });

  document.getElementById("files-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(() => open(pathInput.value || "/"));
  });
  document.getElementById("files-up").addEventListener("click", () => attempt(() => open(folder.replace(/\/+[^/]*\/*$/, "") || "/")));
  document.getElementById("files-home").addEventListener("click", () => attempt(() => open("~")));
  document.getElementById("files-upload")?.addEventListener("change", (event) =>
    attempt(async () => {
      const input = event.target;
      try {
        for (const file of input.files) {
          document.getElementById("files-more").textContent = `Uploading ${file.name}`;
          await write(join(folder, file.name), file);
        }
      } finally {
        input.value = "";
      }
      await open(folder);
    }),
  );
  document.getElementById("files-new")?.addEventListener("click", () => {
    openFile = null;
    name.value = "";
    nameField.hidden = false;
    document.getElementById("file-title").textContent = "New file";
    document.getElementById("file-note").textContent = folder;
    show("", true);
    name.focus();
  });

  /** An image may name a home folder that it does not have. */
  async function first() {
    try {
      await open(folder);
    } catch (error) {
      if (wanted || error.status !== 404) throw error;
      await open("/");
    }
  }

  const wanted = new URLSearchParams(location.search).get("path");
  folder = wanted || "~";
  pathInput.value = folder;
  if (document.getElementById("sandbox-head").dataset.state === "running") attempt(() => first());
  else document.getElementById("files-more").textContent = "It does not run now: opening a folder resumes it, where that was agreed on.";
})();
