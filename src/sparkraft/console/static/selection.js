// The selected event of a drawing: by pointer, by focus, and by arrow keys.

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export class Selection {
  constructor() {
    this.key = null;
    this.keys = [];
    this.view = null;
    this.shown = 0;
  }

  // Scroll to the newest event of the drawing once it is there, unless another one is selected.
  followNewest(root) {
    const view = root.querySelector(".lanes-scroll");
    const isNews = view !== this.view || this.keys.length !== this.shown;
    if (view && isNews && this.key === null) view.scrollLeft = view.scrollWidth;
    this.view = view;
    this.shown = this.keys.length;
  }

  onClick(event) {
    const group = event.target.closest("[data-event]");
    if (!group) return false;
    this.key = group.getAttribute("data-event");
    return true;
  }

  onFocus(event) {
    const key = event.target.getAttribute?.("data-event");
    if (!key || key === this.key) return false;
    this.key = key;
    return true;
  }

  onKey(event) {
    const group = event.target.closest?.("[data-event]");
    if (!group) return false;
    const now = this.keys.indexOf(group.getAttribute("data-event"));
    if (event.key === "Escape") {
      this.key = null;
      return true;
    }
    const to = { Home: 0, End: this.keys.length - 1, Enter: now, " ": now }[event.key] ?? now + (STEPS[event.key] ?? NaN);
    if (Number.isNaN(to)) return false;
    this.key = this.keys[Math.max(0, Math.min(this.keys.length - 1, to))];
    document.querySelector(`[data-event="${CSS.escape(this.key)}"]`)?.focus();
    return true;
  }
}
