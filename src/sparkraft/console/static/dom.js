// Elements from data. Text only ever enters a page as a text node or an attribute, so names and
// records that contain markup are shown and never run.

const SVG = "http://www.w3.org/2000/svg";

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(key, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) {
      node.append(child instanceof Node ? child : String(child));
    }
  }
  return node;
}

const stubs = new WeakSet();

// An element that `morph` gives attributes only: its children in the document stay as they are.
export function stub(name, attributes) {
  const node = el(name, attributes);
  stubs.add(node);
  return node;
}

// Make `old` equal to `fresh` and keep what is already equal: focus, selection and scrolling stay.
// Nodes with different data-key attributes are never reused for each other, and one that comes or goes
// leaves its siblings as they are.
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || keyOf(old) !== keyOf(fresh)) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  morphAttributes(old, fresh);
  if (!stubs.has(fresh)) morphChildren(old, [...fresh.childNodes]);
}

function morphAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !isKept(old, name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !isKept(old, name)) old.setAttribute(name, value);
  }
}

// Whether a reader opened a <details>: the reader's choice stays.
const isKept = (node, name) => name === "open" && node.nodeName === "DETAILS";

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
  const wanted = new Set(fresh.map(keyOf));
  let at = old.firstChild;
  for (const child of fresh) {
    while (at && keyOf(at) && !wanted.has(keyOf(at))) at = removed(at);
    const known = keyOf(child) && keyed.get(keyOf(child));
    if (known && known !== at) old.insertBefore(known, at);
    if (known) at = known;
    if (!at) {
      old.append(child);
      continue;
    }
    const next = at.nextSibling;
    if (!known && (keyOf(at) || keyOf(child))) {
      old.insertBefore(child, at);
      continue;
    }
    morph(at, child);
    at = next;
  }
  while (at) at = removed(at);
}

// Remove a node; its next sibling.
function removed(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);

// The command that prints the same as the screen, or the one of `label`, with a button that copies it.
export function commandLine(command, label = "The same in a terminal: ") {
  return el("p", { class: "command" },
    el("span", { class: "muted" }, label),
    el("code", {}, command),
    el("button", { type: "button", "data-copy": command, "aria-label": `Copy ${command}` }, "Copy"));
}

export function table(caption, heads, rows) {
  return el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    el("table", {}, el("caption", {}, caption),
      el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, rows)));
}

export const count = (number, noun) => `${Number(number).toLocaleString("en-US")} ${noun}${number === 1 ? "" : "s"}`;

export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

export const clock = (ms) => new Date(ms).toISOString().slice(11, 23);

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(number) {
  const unit = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, Number(number))) / 10)));
  return `${(Number(number) / 1024 ** unit).toFixed(unit ? 1 : 0)} ${UNITS[unit]}`;
}
