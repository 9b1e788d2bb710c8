// What programs print and display, shown so that nothing of it can act: text is text, pictures are pictures, HTML is in a frame that may do nothing.
"use strict";

const atollResults = (() => {
  const MOST_LINES = 2000;
  const LONGEST_LINE = 20000;
  const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
  const UNFINISHED = /\x1b(?:\[[0-?]*[ -\/]*|[\]PX^_][^\x07\x1b]{0,8192}\x1b?|[ -\/]*)$/;
  const FRAME_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; form-action 'none'; base-uri 'none'";

  function make(name, className, text) {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  // --- printed text ----------------------------------------------------------------------------------------------------

  /** Prints into an element as a terminal would show it: carriage returns go back, escape sequences vanish. Keeps the last lines. */
  class Printer {
    #element;
    #waiting = [];
    #line = "";
    #column = 0;
    #stderr = false;
    #rest = "";
    #scheduled = false;
    #last = null;

    constructor(element) {
      this.#element = element;
    }

    print(text, stream) {
      text = this.#rest + text;
      this.#rest = "";
      // A sequence may be cut between two pieces.
      const open = UNFINISHED.exec(text);
      if (open) {
        this.#rest = open[0];
        text = text.slice(0, open.index);
      }
      for (const piece of plain(text).split(/([\n\r\b])/)) {
        if (piece === "\n") this.#end();
        else if (piece === "\r") this.#column = 0;
        else if (piece === "\b") this.#column = Math.max(0, this.#column - 1);
        else if (piece) this.#put(piece, stream);
      }
      if (!this.#scheduled) {
        this.#scheduled = true;
        setTimeout(() => this.flush(), 60);
      }
    }

    /** A word of the page itself between the lines. */
    note(text) {
      if (this.#line) this.#end();
      this.#waiting.push({ text, kind: "log-note" });
      this.flush();
    }

    #put(piece, stream) {
      if (stream === "stderr") this.#stderr = true;
      if (this.#line.length > LONGEST_LINE) return;
      const room = piece.slice(0, LONGEST_LINE);
      this.#line = this.#line.slice(0, this.#column) + room + this.#line.slice(this.#column + room.length);
      this.#column += room.length;
    }

    #end() {
      this.#waiting.push({ text: this.#line, kind: this.#stderr ? "log-error" : "" });
      if (this.#waiting.length > 2 * MOST_LINES) this.#waiting.splice(0, MOST_LINES);
      this.#line = "";
      this.#column = 0;
      this.#stderr = false;
    }

    flush() {
      this.#scheduled = false;
      const element = this.#element;
      const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
      this.#last?.remove();
      this.#last = null;
      const lines = this.#waiting.splice(0).slice(-MOST_LINES);
      element.append(...lines.map((line) => make("span", line.kind, line.text + "\n")));
      if (this.#line) {
        this.#last = make("span", this.#stderr ? "log-error" : "", this.#line);
        element.append(this.#last);
      }
      while (element.childElementCount > MOST_LINES) element.firstElementChild.remove();
      if (atEnd) element.scrollTop = element.scrollHeight;
    }
  }

  /** Without what only a terminal understands. */
  function plain(text) {
    return text
      .replace(/\x1b\[[0-?]*[ -\/]*[@-~]/g, "")
      .replace(/\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)/g, "")
      .replace(/\x1b(?:[ -\/]+[0-~]|[0-OQ-WYZ\\`-~])/g, "")
      .replace(/[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]/g, "");
  }

  // --- displayed values ------------------------------------------------------------------------------------------------

  function text(value) {
    if (Array.isArray(value)) return value.map(text).join("");
    return typeof value === "string" ? value : JSON.stringify(value, null, 2);
  }

  function picture(source, type, words) {
    const image = make("img", "result-picture");
    image.alt = words || type;
    image.src = source;
    return image;
  }

  function bytes(value) {
    return text(value).replace(/\s+/g, "");
  }

  /** HTML in a frame of an origin of its own, without scripts, forms, links to elsewhere and a network. */
  function frame(html) {
    const element = make("iframe", "result-frame");
    element.setAttribute("sandbox", "");
    element.setAttribute("referrerpolicy", "no-referrer");
    element.title = "HTML that the program displayed";
    const fill = () => {
      const style = getComputedStyle(document.documentElement);
      const [back, front, line, scheme] = ["--bg-raised", "--text", "--line", "color-scheme"].map((name) => style.getPropertyValue(name).trim());
      element.srcdoc =
        `<!DOCTYPE html><html><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${FRAME_POLICY}">` +
        `<style>:root{color-scheme:${scheme}}body{margin:12px;background:${back};color:${front};font:13px/1.5 ui-sans-serif,system-ui,"Liberation Sans",sans-serif;overflow-wrap:anywhere}` +
        `table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:4px 10px;border:1px solid ${line};text-align:right}th{font-weight:600}img,svg{max-width:100%}</style></head><body>` +
        html;
    };
    fill();
    document.addEventListener("atoll:theme", fill);
    // Nobody can measure it from here: this is a guess, and people can pull.
    const rows = (html.match(/<(?:tr|p|br|li|h[1-6]|hr)\b/gi) ?? []).length + Math.ceil(html.replace(/<[^>]*>/g, "").length / 110);
    element.height = String(Math.min(480, Math.max(64, 40 + 28 * rows)));
    return element;
  }

  function svg(code) {
    // As a picture it runs no scripts and loads nothing.
    return picture("data:image/svg+xml;charset=utf-8," + encodeURIComponent(text(code)), "image/svg+xml");
  }

  /** The best form that a page can show; undefined where there is none. */
  function best(data) {
    for (const type of PICTURES) if (data[type] !== undefined) return picture(`data:${type};base64,${bytes(data[type])}`, type, data["text/plain"] && text(data["text/plain"]));
    if (data["image/svg+xml"] !== undefined) return svg(data["image/svg+xml"]);
    if (data["text/html"] !== undefined) return frame(text(data["text/html"]));
    for (const type of ["text/markdown", "text/latex", "text/plain"]) if (data[type] !== undefined) return make("pre", "output", plain(text(data[type])));
    for (const type of Object.keys(data)) if (type.endsWith("json") || type.startsWith("text/") || type === "application/javascript") return make("pre", "output", text(data[type]));
    return undefined;
  }

  function show(result) {
    const data = result.data ?? {};
    const element = make("div", "result");
    const shown = best(data);
    element.append(shown ?? make("p", "muted", `Nothing that can be shown: ${Object.keys(data).join(", ") || "no data"}`));
    if (shown && shown.tagName !== "PRE" && data["text/plain"] !== undefined) {
      const more = make("details", "result-text");
      more.append(make("summary", "muted", "As text"), make("pre", "output", plain(text(data["text/plain"]))));
      element.append(more);
    }
    if (result.truncated_bytes > 0) element.append(make("p", "muted", `${result.truncated_bytes.toLocaleString("en")} bytes were too many and left out`));
    return element;
  }

  /** A list of displayed values in which later ones may replace earlier ones. */
  class Results {
    #element;
    #named = new Map();

    constructor(element) {
      this.#element = element;
    }

    add(result) {
      if (result.clear) {
        this.#element.replaceChildren();
        this.#named.clear();
        if (Object.keys(result.data ?? {}).length === 0) return;
      }
      const made = show(result);
      const before = result.display_id && this.#named.get(result.display_id);
      if (result.display_id) this.#named.set(result.display_id, made);
      if (result.update && before) before.replaceWith(made);
      else this.#element.append(made);
    }
  }

  // --- streams ---------------------------------------------------------------------------------------------------------

  function decoded(piece) {
    if (piece.text !== undefined) return piece.text;
    return new TextDecoder().decode(Uint8Array.from(atob(piece.base64), (c) => c.charCodeAt(0)));
  }

  /** The events of an answer, one by one: {name, data}. */
  async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let name = "";
    let data = [];
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines.map((one) => one.replace(/\r$/, ""))) {
        if (line === "") {
          if (data.length) yield { name, data: JSON.parse(data.join("\n")) };
          name = "";
          data = [];
        } else if (line.startsWith("event:")) name = line.slice(6).trim();
        else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      }
    }
  }

  /** Shows a stream's events as they come. Returns the last one, or undefined if it broke off. */
  async function follow(response, printer, results, started) {
    for await (const event of events(response)) {
      if (event.name === "start") started?.(event.data);
      else if (event.name === "output") printer.print(decoded(event.data), event.data.stream);
      else if (event.name === "result") results.add(event.data);
      else if (event.name === "gap") printer.note(`… ${event.data.bytes.toLocaleString("en")} bytes of ${event.data.stream} left out …`);
      else if (event.name === "done" || event.name === "error") {
        printer.flush();
        return event;
      }
    }
    printer.flush();
    return undefined;
  }

  const words = {
    completed: ["Completed", "good"],
    error: ["Error", "bad"],
    exited: ["Exited", ""],
    timeout: ["Timed out", "warn"],
    interrupted: ["Interrupted", "warn"],
    out_of_memory: ["Out of memory", "bad"],
    kernel_died: ["Interpreter died", "bad"],
    sandbox_ended: ["Sandbox ended", "bad"],
    lost: ["Lost", "bad"],
  };

  function duration(millis) {
    return millis < 1000 ? `${millis.toFixed(millis < 10 ? 1 : 0)} ms` : `${(millis / 1000).toFixed(millis < 10000 ? 1 : 0)} s`;
  }

  return { Printer, Results, show, follow, make, plain, words, duration };
})();
