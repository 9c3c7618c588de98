// A table of many rows. Only the rows in view are in the document, and scrolling draws nothing else, at
// most once a frame, so that thousands of rows scroll smoothly. A redraw makes only those rows whose
// facts have changed.

import { el, morph, stub, svg } from "./dom.js";

const ROW = 36;
const SPARE = 4;
const HEIGHT = 600;

// Digits that fit into the narrowest column.
const SHORT_CHARS = 7;

export class Rows {
  // `kind` is a class of the stylesheet, which has the widths of the columns.
  constructor(name, kind, columns) {
    this.name = name;
    this.kind = kind;
    this.columns = columns;
    this.top = 0;
    this.shown = null;
    this.drawing = 0;
    this.view = null;
    this.above = space();
    this.below = space();
    this.drawn = new Map();
  }

  // `keyOf` returns the name of an item in the document, `factsOf` all that its cells depend on, and
  // `cellsOf` the cells of such facts.
  draw(items, keyOf, factsOf, cellsOf) {
    this.shown = { items, keyOf, factsOf, cellsOf };
    return el("div", { class: `rows ${this.kind}`, role: "table", "aria-label": this.name, "aria-rowcount": items.length + 1 },
      el("div", { role: "rowgroup" }, el("div", { class: "row head", role: "row", "aria-rowindex": 1 },
        this.columns.map((column) => el("span", { role: "columnheader" }, column)))),
      stub("div", this.attributes()));
  }

  attributes() {
    return { class: "window", "data-key": `window-${this.kind}`, role: "rowgroup", tabindex: "0", "aria-label": `Rows of ${this.name.toLowerCase()}` };
  }

  // Draw the rows in view, into the document. Rows that stay in view are not touched.
  drawRows() {
    const { items, keyOf } = this.shown;
    const first = Math.max(0, Math.min(Math.floor(this.top / ROW) - SPARE, items.length - 1));
    const last = Math.min(items.length, first + Math.ceil(HEIGHT / ROW) + 2 * SPARE);
    const before = this.drawn;
    this.drawn = new Map(items.slice(first, last).map((item, at) => {
      const key = keyOf(item);
      return [key, this.row(key, item, first + at, before.get(key))];
    }));
    for (const [key, { node }] of before) if (!this.drawn.has(key)) node.remove();
    this.above.setAttribute("height", first * ROW);
    this.below.setAttribute("height", Math.max(0, items.length - last) * ROW);
    let following = this.above.nextSibling;
    for (const { node } of this.drawn.values()) {
      if (node === following) following = node.nextSibling;
      else this.view.insertBefore(node, following);
    }
  }

  // A row with what it shows; the one before it, changed if its facts are others.
  row(key, item, at, before) {
    const { shown } = this;
    if (before?.shown === shown) return before;
    const facts = shown.factsOf(item);
    const text = JSON.stringify(facts);
    const attributes = { class: "row", role: "row", "aria-rowindex": at + 2, "data-key": key };
    const fresh = before?.text === text ? stub("div", attributes) : el("div", attributes, shown.cellsOf(facts));
    if (before) morph(before.node, fresh);
    return { node: before?.node ?? fresh, text, shown };
  }

  onDrawn(root) {
    const view = root.querySelector(".window");
    if (!view) return;
    if (view === this.view) {
      this.drawRows();
      return;
    }
    this.view = view;
    this.view.replaceChildren(this.above, this.below);
    this.drawn.clear();
    this.drawRows();
    view.scrollTop = this.top;
    view.addEventListener("scroll", () => {
      const before = Math.floor(this.top / ROW);
      this.top = view.scrollTop;
      if (Math.floor(this.top / ROW) === before || this.drawing) return;
      this.drawing = requestAnimationFrame(() => {
        this.drawing = 0;
        if (view.isConnected) this.drawRows();
      });
    }, { passive: true });
  }
}

// Text that may be wider than its column is cut off at its end.
export function cell(attributes, ...children) {
  const made = el("span", { role: "cell", ...attributes }, children);
  if (made.textContent.length > SHORT_CHARS) made.classList.add("long");
  return made;
}

// The room of rows that are not in the document; an attribute, since inline styles are not allowed.
const space = () => svg("svg", { class: "space", width: 1, height: 0, "aria-hidden": "true" });
