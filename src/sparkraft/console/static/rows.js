// A table of many rows. Only the rows in view are in the document, and scrolling draws nothing else, at
// most once a frame, so that thousands of rows scroll smoothly.

import { el, morph, svg } from "./dom.js";

const ROW = 36;
const SPARE = 8;
const HEIGHT = 600;

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
  }

  // `cellsOf` returns the cells of an item, `keyOf` its name in the document.
  draw(items, keyOf, cellsOf) {
    this.shown = { items, keyOf, cellsOf };
    return el("div", { class: `rows ${this.kind}`, role: "table", "aria-label": this.name, "aria-rowcount": items.length + 1 },
      el("div", { role: "rowgroup" }, el("div", { class: "row head", role: "row", "aria-rowindex": 1 },
        this.columns.map((column) => el("span", { role: "columnheader" }, column)))),
      this.window());
  }

  window() {
    const { items, keyOf, cellsOf } = this.shown;
    const first = Math.max(0, Math.min(Math.floor(this.top / ROW) - SPARE, items.length - 1));
    const last = Math.min(items.length, first + Math.ceil(HEIGHT / ROW) + 2 * SPARE);
    return el("div", { class: "window", "data-key": `window-${this.kind}`, role: "rowgroup", tabindex: "0", "aria-label": `Rows of ${this.name.toLowerCase()}` },
      space(first * ROW),
      items.slice(first, last).map((item, at) =>
        el("div", { class: "row", role: "row", "aria-rowindex": first + at + 2, "data-key": keyOf(item) }, cellsOf(item))),
      space((items.length - last) * ROW));
  }

  onDrawn(root) {
    const view = root.querySelector(".window");
    if (!view || view === this.view) return;
    this.view = view;
    view.scrollTop = this.top;
    view.addEventListener("scroll", () => {
      const before = Math.floor(this.top / ROW);
      this.top = view.scrollTop;
      if (Math.floor(this.top / ROW) === before || this.drawing) return;
      this.drawing = requestAnimationFrame(() => {
        this.drawing = 0;
        if (view.isConnected) morph(view, this.window());
      });
    }, { passive: true });
  }
}

export const cell = (attributes, ...children) => el("span", { role: "cell", ...attributes }, children);

// The room of rows that are not in the document; an attribute, since inline styles are not allowed.
const space = (height) => svg("svg", { class: "space", width: 1, height: Math.max(0, height), "aria-hidden": "true" });
