// The script of the dashboard. Pages work without it. It keeps a live page up to date, lets a person
// pause the updates, and moves a token from the address into the login form.
"use strict";

(() => {
  const live = document.getElementById("live");
  const button = document.getElementById("live-state");
  const banner = document.getElementById("live-failure");
  let source = null;
  let isPaused = false;
  let retry = null;
  // The newest version of the page, if it waits until no text is selected.
  let waiting = null;
  // The forms that were sent and have no answer yet.
  const sent = new WeakSet();

  // The wait before the next try, if the dashboard refused to keep this page up to date. It does so
  // when too many pages are watched.
  const RETRY_MS = 30000;

  // The longest wait for the answer to a form. After it, a person may send the form again.
  const ANSWER_WAIT_MS = 30000;

  // The address without the number of a notice, because a notice is shown only once.
  const address = new URL(location.href);
  if (address.searchParams.has("notice")) {
    address.searchParams.delete("notice");
    history.replaceState(null, "", address);
  }

  const say = (text, state) => {
    button.textContent = text;
    button.dataset.state = state;
    button.setAttribute("aria-pressed", String(isPaused));
  };

  const connect = () => {
    if (source || isPaused || document.hidden) return;
    clearTimeout(retry);
    say("Connecting", "waiting");
    source = new EventSource(address.pathname + address.search);
    source.onopen = () => say("Live", "on");
    source.onerror = () => {
      // A stream that was refused stays closed. A stream whose connection broke connects again by
      // itself.
      const isClosed = source && source.readyState === EventSource.CLOSED;
      say(isClosed ? "Not live" : "Reconnecting", "waiting");
      if (!isClosed) return;
      disconnect();
      retry = setTimeout(connect, RETRY_MS);
    };
    source.onmessage = (event) => show(event.data);
    // The server says after each look how old the page is. Without looks, the time stays as it is.
    source.addEventListener("seen", (event) => {
      // A newer version waits until the selection ends.
      if (waiting !== null) return;
      const at = new Date(Date.now() - Number(event.data));
      const two = (number) => String(number).padStart(2, "0");
      say(`Live, as of ${[at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":")}`, "on");
    });
    // The page stays, with half-filled forms, under the message. A page that never had content shows
    // the reason already.
    source.addEventListener("failure", (event) => {
      if (!("failed" in live.dataset)) banner.innerHTML = event.data;
    });
  };

  const disconnect = () => {
    clearTimeout(retry);
    if (source) source.close();
    source = null;
  };

  // Puts a new version of the page in place of the old one, node by node, so that focus, opened
  // details and half-filled forms stay as they are.
  const show = (html) => {
    const selection = document.getSelection();
    const isSelecting = selection && !selection.isCollapsed && live.contains(selection.anchorNode);
    // A version that comes while text is selected is shown when the selection ends: the server
    // sends it only once.
    waiting = isSelecting ? html : null;
    if (isSelecting) return;
    banner.replaceChildren();
    delete live.dataset.failed;
    const template = document.createElement("template");
    template.innerHTML = html;
    morphChildren(live, template.content);
    live.dispatchEvent(new Event("updated"));
  };

  // Reads the attribute, because `form.id` would be the field with the name `id`.
  const key = (node) =>
    node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") || node.getAttribute("id") || "" : "";

  const isSame = (one, other) =>
    one.nodeType === other.nodeType && one.nodeName === other.nodeName && key(one) === key(other);

  const morph = (node, fresh) => {
    if (node.nodeType === Node.TEXT_NODE) {
      if (node.data !== fresh.data) node.data = fresh.data;
      return;
    }
    if (node.nodeType !== Node.ELEMENT_NODE || node.isEqualNode(fresh)) return;
    // A newer version of the page has no number for its forms.
    if (node.nodeName === "INPUT" && node.name === "once" && fresh.name === "once") return;
    for (const { name } of [...node.attributes]) {
      const isKept =
        (name === "open" && node.nodeName === "DETAILS") || (name === "disabled" && sent.has(node.form));
      if (!fresh.hasAttribute(name) && !isKept) node.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (node.getAttribute(name) !== value) node.setAttribute(name, value);
    }
    morphChildren(node, fresh);
  };

  const morphChildren = (parent, fresh) => {
    const keyed = new Map();
    for (const child of parent.childNodes) if (key(child)) keyed.set(key(child), child);
    let place = parent.firstChild;
    for (const child of [...fresh.childNodes]) {
      let match = key(child) ? keyed.get(key(child)) : place;
      if (match && !isSame(match, child)) match = null;
      if (!match) {
        parent.insertBefore(child, place);
        continue;
      }
      if (match === place) place = place.nextSibling;
      else parent.insertBefore(match, place);
      morph(match, child);
    }
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
  };

  if (live && button && "live" in live.dataset) {
    button.hidden = false;
    button.addEventListener("click", () => {
      isPaused = !isPaused;
      if (isPaused) {
        disconnect();
        say("Paused", "off");
      } else connect();
    });
    // A hidden page is not kept up to date, so it costs nothing.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) disconnect();
      else connect();
    });
    document.addEventListener("selectionchange", () => {
      if (waiting !== null) show(waiting);
    });
    addEventListener("pagehide", disconnect);
    addEventListener("pageshow", connect);
    connect();
  }

  // A form that is sent twice acts once: the second click does nothing, and the number in the form tells
  // the server that it is the same form. A form that came with a newer version of the page gets its
  // number here.
  const newNumber = () =>
    Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16)).join("-");

  const release = (form) => {
    sent.delete(form);
    for (const button of form.querySelectorAll("button[type=submit]")) button.disabled = false;
  };

  document.addEventListener("submit", (event) => {
    const form = event.target;
    const once = form.elements.once;
    if (!once) return;
    if (sent.has(form)) {
      event.preventDefault();
      return;
    }
    if (!once.value) once.value = newNumber();
    sent.add(form);
    // A browser does not send a button that is disabled. So the buttons are disabled after the browser has
    // put the form together.
    setTimeout(() => {
      for (const button of form.querySelectorAll("button[type=submit]")) button.disabled = true;
    });
    // If no answer comes, a person may try again. The number stays, so nothing is done twice.
    setTimeout(() => release(form), ANSWER_WAIT_MS);
  });

  // After a step back, a browser may show a page again as it was left. Its forms may have been sent, so they
  // get new numbers.
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    for (const form of document.forms) {
      if (!form.elements.once) continue;
      form.elements.once.value = newNumber();
      release(form);
    }
  });

  // The key / moves the focus to the filter, as in many tools.
  document.addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.nodeName);
    const filter = document.getElementById("filter");
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && filter) {
      event.preventDefault();
      filter.focus();
    }
  });

  // The login link is the address / with a fragment: `#token=` and the token. Browsers do not send fragments.
  // The fragment is removed from the address at once, also if the person is signed in already. The fragment
  // of any other address is not a token; it names a place on the page, such as `#event-7`.
  const login = document.getElementById("login");
  const mark = "#token=";
  if (location.pathname === "/" && location.hash.startsWith(mark)) {
    const token = location.hash.slice(mark.length);
    history.replaceState(null, "", location.pathname + location.search);
    if (login) {
      login.elements.token.value = token;
      login.submit();
    }
  }
})();
