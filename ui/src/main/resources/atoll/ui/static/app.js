// What every page does: live regions, forms that stay on the page when something fails, dialogs, copying, the theme.
"use strict";

const atoll = (() => {
  const formToken = document.querySelector('meta[name="form-token"]').content;

  // --- calls of the API, with the session ------------------------------------------------------------------------------

  /** fetch for /ui/v1/…: adds the session's token, throws an Error with .status, .code and .remediation for what is no success. */
  async function call(path, options = {}) {
    const headers = new Headers(options.headers);
    headers.set("Atoll-Form-Token", formToken);
    headers.set("Atoll-Script", "1");
    if (options.json !== undefined) {
      headers.set("Content-Type", "application/json");
      options = { ...options, body: JSON.stringify(options.json), method: options.method ?? "POST" };
    }
    const response = await fetch(path, { ...options, headers, credentials: "same-origin" });
    if (!response.ok) throw await failure(response);
    return response;
  }

  async function failure(response) {
    let told = {};
    try {
      told = (await response.json()).error ?? {};
    } catch {
      // No JSON: the status has to do.
    }
    const error = new Error(told.message ?? `the server answered ${response.status}`);
    return Object.assign(error, { status: response.status, code: told.code ?? "", reason: told.cause ?? "", remediation: told.remediation ?? "" });
  }

  function words(error) {
    return [error.message, error.remediation].filter(Boolean).join(" · ");
  }

  // --- toasts ----------------------------------------------------------------------------------------------------------

  const toasts = document.getElementById("toasts");

  function toast(text, kind = "") {
    const element = document.createElement("div");
    element.className = `toast ${kind}`;
    element.textContent = text;
    toasts.append(element);
    setTimeout(() => element.remove(), kind === "bad" ? 12000 : 5000);
  }

  setTimeout(() => toasts.querySelectorAll(".toast").forEach((element) => element.remove()), 5000);
  const kept = sessionStorage.getItem("atoll-message");
  if (kept) {
    sessionStorage.removeItem("atoll-message");
    toast(kept);
  }

  // --- forms -----------------------------------------------------------------------------------------------------------

  function confirmed(text) {
    const dialog = document.getElementById("confirm");
    document.getElementById("confirm-text").textContent = text;
    dialog.showModal();
    return new Promise((resolve) => {
      const yes = dialog.querySelector("[data-confirmed]");
      const accept = () => {
        dialog.close("yes");
      };
      yes.addEventListener("click", accept, { once: true });
      dialog.addEventListener(
        "close",
        () => {
          yes.removeEventListener("click", accept);
          resolve(dialog.returnValue === "yes");
          dialog.returnValue = "";
        },
        { once: true },
      );
    });
  }

  async function submit(form, submitter) {
    const question = submitter?.dataset.confirm ?? form.dataset.confirm;
    if (question && !(await confirmed(question))) return;
    // Before the button is disabled, which would take its value out.
    const body = new URLSearchParams(new FormData(form, submitter));
    const problem = form.querySelector("[data-problem]");
    if (problem) problem.textContent = "";
    form.setAttribute("aria-busy", "true");
    if (submitter) submitter.disabled = true;
    try {
      const response = await call(submitter?.getAttribute("formaction") ?? form.getAttribute("action"), { method: "POST", body });
      const outcome = await response.json();
      if (form.hasAttribute("data-stay")) {
        if (outcome.message) toast(outcome.message);
        form.closest("dialog")?.close();
        form.dispatchEvent(new CustomEvent("atoll:done", { bubbles: true, detail: outcome }));
      } else {
        if (outcome.message) sessionStorage.setItem("atoll-message", outcome.message);
        leave(outcome.path);
      }
    } catch (error) {
      if (error.status === 401) leave("/ui/login?next=" + encodeURIComponent(location.pathname + location.search));
      else if (problem) problem.textContent = words(error);
      else toast(words(error), "bad");
    } finally {
      form.removeAttribute("aria-busy");
      if (submitter) submitter.disabled = false;
    }
  }

  function leave(path) {
    const target = new URL(path, location.href);
    if (target.pathname === location.pathname && target.search === location.search) {
      history.replaceState(null, "", target);
      location.reload();
    } else location.assign(target);
  }

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || form.hasAttribute("hx-post") || event.defaultPrevented) return;
    event.preventDefault();
    submit(form, event.submitter);
  });

  document.addEventListener("htmx:configRequest", (event) => {
    event.detail.headers["Atoll-Form-Token"] = formToken;
  });

  // --- dialogs, copying, menu, theme -----------------------------------------------------------------------------------

  document.addEventListener("click", async (event) => {
    const element = event.target.closest("[data-dialog], [data-close], [data-copy], [data-menu], [data-theme-switch]");
    if (!element) {
      // A click beside a dialog's content closes it.
      if (event.target instanceof HTMLDialogElement && event.target.id !== "confirm") event.target.close();
      return;
    }
    if (element.dataset.dialog) document.getElementById(element.dataset.dialog)?.showModal();
    else if (element.hasAttribute("data-close")) element.closest("dialog")?.close();
    else if (element.dataset.copy) await copy(element);
    else if (element.hasAttribute("data-menu")) {
      const open = document.body.classList.toggle("menu-open");
      element.setAttribute("aria-expanded", String(open));
    } else switchTheme();
  });

  async function copy(button) {
    const text = document.getElementById(button.dataset.copy)?.textContent ?? "";
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // Without TLS, off loopback, there is no clipboard: select it instead.
      getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = before), 1500);
  }

  function switchTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("atoll-theme", root.dataset.theme);
    document.dispatchEvent(new CustomEvent("atoll:theme"));
  }

  // --- live regions ----------------------------------------------------------------------------------------------------

  let path = document.body.dataset.live;
  let source = null;

  function badge(state, text) {
    document.querySelectorAll("[data-live-badge]").forEach((element) => {
      element.dataset.state = state;
      element.querySelector("[data-live-text]").textContent = text;
    });
  }

  function connect() {
    if (!path || source) return;
    source = new EventSource(path);
    source.onopen = () => badge("live", "LIVE");
    source.onerror = () => {
      badge("down", "RECONNECTING");
      // A browser gives up on an answer that is no stream, such as that of a server that starts.
      if (source?.readyState === EventSource.CLOSED) {
        source = null;
        setTimeout(connect, 2000);
      }
    };
    source.addEventListener("logged-out", () => leave("/ui/login?next=" + encodeURIComponent(location.pathname + location.search)));
    document.querySelectorAll("[data-region]").forEach((element) => {
      source.addEventListener(element.dataset.region, (event) => {
        Idiomorph.morph(element, event.data, { morphStyle: "innerHTML", ignoreActiveValue: true });
        htmx.process(element);
        element.dispatchEvent(new CustomEvent("atoll:changed", { bubbles: true }));
      });
    });
  }

  /** The regions have changed, and come from this stream from now on; without one they stay as they are. */
  function follow(stream) {
    source?.close();
    source = null;
    path = stream;
    if (!document.hidden) connect();
  }

  // A hidden page needs nothing, and browsers open six connections to a server at most.
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) connect();
    else if (source) {
      source.close();
      source = null;
      badge("connecting", "PAUSED");
    }
  });
  if (path && !document.hidden) connect();

  // --- times -----------------------------------------------------------------------------------------------------------

  return { call, toast, words, confirmed, formToken, leave, follow };
})();
