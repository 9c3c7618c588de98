// The quorum: who leads the metadata log, every election as lanes and as text, with its reasons.

import { commandLine, el, table } from "./dom.js";
import { drawLanes, eventsOf, legend, sentenceOf } from "./lanes.js";
import { waiting } from "./overview.js";

export const kinds = ["quorum", "cluster", "problem"];

let selected = null;
let newest = null;
let drawnEvents = "";

export function draw({ documents }) {
  newest = documents.get("quorum");
  const cluster = documents.get("cluster");
  if (!newest) return [el("h1", {}, "Quorum"), waiting(documents.get("problem"))];
  return [
    el("h1", {}, "Quorum"),
    el("p", { class: "lead" }, controllerSentence(newest, cluster)),
    drawLanes(newest, { selected, isCompact: false }),
    legend(),
    el("p", { id: "chosen", class: "chosen", "aria-live": "polite" }, chosen()),
    el("p", { class: "muted" }, "Arrow keys step through the events of the drawing; Home and End go to the first and last. Times are UTC, of the clock of each node."),
    nodes(newest, cluster),
    el("section", {}, el("h2", {}, "Epochs, newest first"), [...newest.epochs].reverse().map(epoch)),
    newest.omittedEpochs > 0 && el("p", { class: "muted" }, `${newest.omittedEpochs} older epochs are not shown; the command prints them.`),
    commandLine(newest.command),
  ];
}

function controllerSentence(quorum, cluster) {
  const controller = cluster?.controller;
  if (!cluster) return "";
  if (!controller) return "No controller is active.";
  const since = controller.since ? ` since ${controller.since.slice(0, 19).replace("T", " ")} UTC` : "";
  const by = controller.grantedBy ? `, elected by ${controller.grantedBy.join(", ")}` : "";
  const why = controller.reason ? `. The election began because: ${controller.reason}` : "";
  return `Node ${controller.id} leads the quorum in epoch ${controller.epoch}${since}${by}${why}.`;
}

function chosen() {
  const events = eventsOf(newest.epochs);
  const event = events.find((one) => one.key === selected) ?? events.at(-1);
  return event ? `Epoch ${event.epoch}: ${sentenceOf(event)}` : "";
}

function nodes(quorum, cluster) {
  const lags = new Map([...(cluster?.voters ?? []), ...(cluster?.observers ?? [])].map((one) => [one.id, one]));
  const rows = quorum.nodes.map((one) => el("tr", { "data-key": `node-${one.id}` },
    el("td", {}, el("b", {}, one.id)),
    el("td", {}, one.isVoter ? "voter" : "observer"),
    el("td", {}, one.state.toLowerCase()),
    el("td", { class: "number" }, one.epoch),
    el("td", {}, one.leader ?? "none"),
    el("td", { class: "number" }, lags.get(one.id)?.lag ?? "—")));
  const silent = quorum.silent.map((one) => el("tr", { "data-key": `silent-${one.node}`, class: "silent" },
    el("td", {}, one.node), el("td", { colspan: 5 }, `not available: ${one.reason}`)));
  return el("section", {}, el("h2", {}, "Nodes"),
    table("Nodes of the quorum", ["Node", "Role", "State", "Epoch", "Leader", "Lag in records"], [...rows, ...silent]));
}

function epoch(one, at) {
  const [head, ...lines] = newest.lines[one.epoch] ?? [];
  return el("details", { "data-key": `lines-${one.epoch}`, open: at === 0, class: one.verdict === "CONTRADICTION" ? "odd" : "" },
    el("summary", {}, head),
    el("ol", { class: "lines" }, lines.map((line) => el("li", {}, line.trim()))));
}

export function onClick(event) {
  const group = event.target.closest("[data-event]");
  if (!group) return false;
  selected = group.getAttribute("data-event");
  return true;
}

export function onFocus(event) {
  const key = event.target.getAttribute?.("data-event");
  if (!key || key === selected) return false;
  selected = key;
  return true;
}

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export function onKey(event) {
  if (!event.target.closest?.("[data-event]")) return false;
  const keys = eventsOf(newest.epochs).map((one) => one.key);
  const now = keys.indexOf(event.target.closest("[data-event]").getAttribute("data-event"));
  let to = null;
  if (event.key in STEPS) to = now + STEPS[event.key];
  if (event.key === "Home") to = 0;
  if (event.key === "End") to = keys.length - 1;
  if (event.key === "Enter" || event.key === " ") to = now;
  if (event.key === "Escape") {
    selected = null;
    return true;
  }
  if (to === null) return false;
  selected = keys[Math.max(0, Math.min(keys.length - 1, to))];
  document.querySelector(`[data-event="${selected}"]`)?.focus();
  return true;
}

// Follow the newest event unless one is selected.
export function onDrawn(root) {
  const lanes = root.querySelector(".lanes-scroll");
  const events = newest ? String(eventsOf(newest.epochs).length) : "";
  if (lanes && selected === null && events !== drawnEvents) lanes.scrollLeft = lanes.scrollWidth;
  drawnEvents = events;
}
