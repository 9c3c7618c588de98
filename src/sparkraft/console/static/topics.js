// All topics, filtered by name. Only the rows in view are in the document, so that thousands of
// topics scroll smoothly.

import { commandLine, count, el, svg } from "./dom.js";
import { topicLink } from "./links.js";

export const kinds = ["problem"];
export const source = () => "/api/topics";

const ROW = 36;
const SPARE = 8;
let top = 0;

export function draw({ data, query }) {
  if (!data) return [el("h1", {}, "Topics"), el("p", { class: "muted" }, "Loading …")];
  const wanted = query.get("name") ?? "";
  const shown = data.topics.filter((one) => one.topic.toLowerCase().includes(wanted.toLowerCase()));
  return [
    el("h1", {}, "Topics"),
    el("p", { class: "tools" },
      el("label", {}, "Name contains ", el("input", { type: "search", name: "filter", value: wanted, autocomplete: "off" })),
      el("span", { class: "muted", role: "status" }, shown.length === data.topics.length ? count(shown.length, "topic") : `${shown.length} of ${count(data.topics.length, "topic")}`)),
    list(shown),
    commandLine(data.command),
  ];
}

function list(shown) {
  const first = Math.max(0, Math.min(Math.floor(top / ROW) - SPARE, shown.length - 1));
  const last = Math.min(shown.length, first + Math.ceil(600 / ROW) + 2 * SPARE);
  const cells = ["Topic", "Partitions", "Replicas", "Under-replicated", "Without leader"];
  return el("div", { class: "rows", role: "table", "aria-label": "Topics", "aria-rowcount": shown.length + 1 },
    el("div", { role: "rowgroup" }, el("div", { class: "row head", role: "row", "aria-rowindex": 1 }, cells.map((cell) => el("span", { role: "columnheader" }, cell)))),
    el("div", { class: "window", role: "rowgroup", tabindex: "0", "aria-label": "Rows of topics" },
      space(first * ROW),
      shown.slice(first, last).map((one, at) => row(one, first + at)),
      space((shown.length - last) * ROW)));
}

// The room of rows that are not in the document; an attribute, since inline styles are not allowed.
const space = (height) => svg("svg", { class: "space", width: 1, height: Math.max(0, height), "aria-hidden": "true" });

function row(one, at) {
  return el("div", { class: "row", role: "row", "aria-rowindex": at + 2, "data-key": `topic-${one.topic}` },
    el("span", { role: "cell" }, topicLink(one.topic), one.isInternal && el("span", { class: "badge" }, "internal")),
    el("span", { role: "cell" }, one.partitions),
    el("span", { role: "cell" }, one.replicas),
    el("span", { role: "cell", class: one.underReplicated ? "bad" : "" }, one.underReplicated),
    el("span", { role: "cell", class: one.offline ? "bad" : "" }, one.offline));
}

export function onInput(event, context) {
  if (event.target.name !== "filter") return false;
  const text = event.target.value;
  context.query = new URLSearchParams(text ? { name: text } : {});
  const address = text ? `/topics?${context.query}` : "/topics";
  history.replaceState(null, "", address);
  context.address = address;
  top = 0;
  return true;
}

export function onDrawn(root, context) {
  const window_ = root.querySelector(".window");
  if (!window_ || window_.dataset.isWatched) return;
  window_.dataset.isWatched = "true";
  window_.addEventListener("scroll", () => {
    const rows = Math.floor(window_.scrollTop / ROW);
    if (rows !== Math.floor(top / ROW)) {
      top = window_.scrollTop;
      context.redraw();
    }
  }, { passive: true });
}
