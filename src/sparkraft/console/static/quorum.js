// The quorum: who leads the metadata log, every election as lanes and as text, with its reasons.

import { commandLine, el, table } from "./dom.js";
import { drawLanes, eventsOf, legend, sentenceOf } from "./lanes.js";
import { waiting } from "./overview.js";
import { Selection } from "./selection.js";

export const kinds = ["quorum", "cluster", "problem"];

const selection = new Selection();
let newest = null;

export function draw({ documents }) {
  newest = documents.get("quorum");
  const cluster = documents.get("cluster");
  if (cluster?.mode === "zookeeper")
    return [el("h1", {}, "Quorum"), el("p", { class: "note" }, "This cluster is in ZooKeeper mode. ", el("a", { href: "/controller", "data-link": true }, "Show its controllers"))];
  if (!newest) return [el("h1", {}, "Quorum"), waiting(documents.get("problem"))];
  const events = eventsOf(newest.epochs);
  selection.keys = events.map((one) => one.key);
  return [
    el("h1", {}, "Quorum"),
    el("p", { class: "lead" }, controllerSentence(newest, cluster)),
    drawLanes(newest, selection.key),
    legend(),
    el("p", { id: "chosen", class: "chosen", "aria-live": "polite" }, chosen(events)),
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

function chosen(events) {
  const event = events.find((one) => one.key === selection.key) ?? events.at(-1);
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

export const onClick = (event) => selection.onClick(event);
export const onFocus = (event) => selection.onFocus(event);
export const onKey = (event) => selection.onKey(event);
export const onDrawn = (root) => selection.followNewest(root);
