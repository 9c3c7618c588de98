// The bar below every screen: a slider over the changes of the metadata log. At an earlier moment the
// address has the parameter `as-of`, an offset, and the screens show the metadata as of then.

import { clock, el, morph, svg } from "./dom.js";

const POLL_MS = 3000;
const SETTLE_MS = 150;
const PLAY_MS = 700;
const WIDTH = 600;
const HEIGHT = 22;

export class MomentBar {
  // `onMove` shows the screen as of an offset; null for now.
  constructor(root, onMove) {
    this.root = root;
    this.onMove = onMove;
    this.log = null;
    this.moment = null;
    this.change = null;
    this.settling = 0;
    this.playing = 0;
    this.problem = null;
    this.jumps = 0;
    this.root.addEventListener("submit", (event) => this.onSubmit(event));
    this.root.addEventListener("input", (event) => this.onInput(event));
    // Arrow keys move the slider and not the selection of a drawing.
    this.root.addEventListener("keydown", (event) => event.stopPropagation());
    this.root.addEventListener("click", (event) => this.onClick(event));
    setInterval(() => document.hidden || this.refresh(), POLL_MS);
  }

  // Show the moment of the address.
  async follow(at) {
    if (at === (this.moment?.offset ?? null) && this.log) return;
    if (!this.log) await this.refresh();
    if (at === null) {
      this.moment = this.change = null;
      this.draw();
    } else await this.ask(`offset=${at}`);
  }

  async refresh() {
    const response = await fetch("/api/timeline").catch(() => null);
    if (!response?.ok) return;
    this.log = await response.json();
    this.draw();
  }

  async ask(which) {
    const { jumps } = this;
    const response = await fetch(`/api/moment?${which}`).catch(() => null);
    const found = response?.ok ? await response.json() : null;
    // Drop the response if the reader has gone elsewhere meanwhile.
    if (!found || jumps !== this.jumps) return;
    this.moment = found;
    this.change = found.change;
    this.draw();
  }

  // Changes follow each other quickly while the slider moves: only the last one is requested.
  go(change) {
    const last = this.log.count - 1;
    this.problem = null;
    this.change = Math.max(this.log.firstChange, Math.min(last, change));
    this.draw();
    clearTimeout(this.settling);
    this.settling = setTimeout(async () => {
      await this.ask(`change=${this.change}`);
      if (this.moment) this.onMove(this.moment.offset);
    }, SETTLE_MS);
  }

  // Show the moment that a reader typed, an offset or a time, or the problem with it.
  async jump(text) {
    this.stop();
    clearTimeout(this.settling);
    const jumps = ++this.jumps;
    const response = await fetch(`/api/moment?at=${encodeURIComponent(text)}`).catch(() => null);
    const found = response?.ok ? await response.json() : { problem: "The console does not respond." };
    if (jumps !== this.jumps) return;
    this.problem = found.problem || null;
    if (!found.problem) {
      this.moment = found;
      this.change = found.change;
    }
    this.draw();
    if (!found.problem) this.onMove(found.offset);
  }

  now() {
    this.stop();
    clearTimeout(this.settling);
    this.jumps++;
    this.problem = null;
    this.moment = this.change = null;
    this.draw();
    this.onMove(null);
  }

  stop() {
    clearInterval(this.playing);
    this.playing = 0;
  }

  onInput(event) {
    event.stopPropagation();
    if (event.target.type === "range") this.go(Number(event.target.value));
    else if (this.problem) {
      this.problem = null;
      this.draw();
    }
  }

  onSubmit(event) {
    event.preventDefault();
    event.stopPropagation();
    const text = new FormData(event.target).get("at").trim();
    if (text) this.jump(text);
  }

  onClick(event) {
    const does = event.target.closest("button")?.dataset.does;
    const at = this.change ?? this.log?.count - 1;
    if (does === "back") this.go(at - 1);
    if (does === "next") this.go(at + 1);
    if (does === "now") this.now();
    if (does === "play") this.play();
  }

  play() {
    if (this.playing) this.stop();
    else this.playing = setInterval(() => {
      if ((this.change ?? this.log.count) >= this.log.count - 1) this.now();
      else this.go((this.change ?? 0) + 1);
    }, PLAY_MS);
    this.draw();
  }

  draw() {
    morph(this.root, el("footer", { id: "moment", class: this.moment ? "moment past" : "moment", "aria-label": "Moment" }, this.content()));
  }

  content() {
    const log = this.log;
    if (!log) return [el("span", { class: "muted" }, "Reading the metadata log …")];
    if (log.problem) return [el("span", { class: "muted" }, `Earlier moments are not available: ${log.problem}`)];
    if (!log.count) return [el("span", { class: "muted" }, "The metadata log has no changes yet.")];
    const at = this.change ?? log.count - 1;
    const isPast = this.change !== null;
    return [
      button("back", "◀", "One change back"), button("play", this.playing ? "❚❚" : "▶", this.playing ? "Stop" : "Play"),
      button("next", "▶▏", "One change on"), button("now", "Now", "Back to now", !isPast),
      el("span", { class: "scale" }, density(log),
        el("input", { type: "range", min: log.firstChange, max: log.count - 1, value: at, "aria-label": "Change of the metadata log", "aria-valuetext": this.label() })),
      this.jumpForm(),
      el("span", { class: "label", role: "status" }, this.label()),
      !log.isComplete && el("span", { class: "muted" }, `indexed ${log.nextOffset.toLocaleString("en-US")} of ${log.highWatermark.toLocaleString("en-US")} offsets`),
      this.problem && el("p", { class: "problem", id: "moment-problem", role: "alert" }, this.problem),
    ];
  }

  jumpForm() {
    return el("form", { class: "jump", "data-key": "jump" },
      el("label", {}, "Go to ", el("input", {
        name: "at", size: 22, placeholder: "offset or time (UTC)", autocomplete: "off", spellcheck: "false",
        "aria-invalid": this.problem ? "true" : null, "aria-describedby": this.problem ? "moment-problem" : null })),
      el("button", { type: "submit" }, "Go"));
  }

  label() {
    if (this.change === null) return `live, ${this.log.count.toLocaleString("en-US")} changes`;
    if (!this.moment || this.moment.change !== this.change) return `change ${this.change}`;
    const { offset, time, text } = this.moment;
    return `as of offset ${offset}${time ? `, ${time.slice(0, 10)} ${clock(Date.parse(time))} UTC` : ""}: ${text}`;
  }
}

const button = (does, sign, name, isOff = false) =>
  el("button", { type: "button", "data-does": does, "aria-label": name, title: name, disabled: isOff }, sign);

// How many leaders were elected in each part of the log.
function density({ buckets, bucketSize, count }) {
  const most = Math.max(1, ...buckets);
  const width = (WIDTH * bucketSize) / count;
  return svg("svg", { class: "density", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    buckets.map((number, at) => number > 0 && svg("rect", {
      x: at * width, y: HEIGHT * (1 - number / most), width: Math.max(1, width - 0.5), height: (HEIGHT * number) / most })));
}
