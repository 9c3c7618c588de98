// The controller in ZooKeeper mode: the race for /controller of each epoch and the steps of the
// failover, as lanes and as text.

import { clock, commandLine, duration, el, table } from "./dom.js";
import { brokerLink, printed } from "./links.js";
import { waiting } from "./overview.js";
import { drawRace, eventsOf, legend, sentenceOf } from "./race.js";
import { Selection } from "./selection.js";

export const kinds = ["controller", "cluster", "problem"];

const RACE_MS = 2000;

const selection = new Selection();

export function draw({ documents }) {
  const found = documents.get("controller");
  const head = el("h1", {}, "Controller");
  if (documents.get("cluster")?.mode === "kraft")
    return [head, el("p", { class: "note" }, "This cluster has a quorum instead of ZooKeeper. ", el("a", { href: "/quorum", "data-link": true }, "Show the quorum"))];
  if (!found) return [head, waiting(documents.get("problem"))];
  const events = eventsOf(found.epochs);
  selection.keys = events.map((one) => one.key);
  const chosen = events.find((one) => one.key === selection.key) ?? events.at(-1);
  return [
    head,
    el("p", { class: "lead" }, lead(found)),
    drawRace(found, selection.key),
    legend(),
    el("p", { id: "chosen", class: "chosen", "aria-live": "polite" }, chosen ? sentenceOf(chosen) : ""),
    el("p", { class: "muted" }, "Arrow keys step through the events of the drawing; Home and End go to the first and last. Times are UTC, of the clock of each broker."),
    failover(found),
    brokers(found),
    el("section", {}, el("h2", {}, "Epochs, newest first"), [...found.lines].reverse().map((lines, at) => epoch(lines, found.lines.length - at + found.omittedEpochs, at === 0))),
    found.omittedEpochs > 0 && el("p", { class: "muted" }, `${found.omittedEpochs} older epochs are not shown; the command prints them with a larger --epochs.`),
    decisions(found),
    commandLine(found.command),
  ];
}

function lead({ controller, epoch, sinceMs, before, lost }) {
  if (controller < 0) return "No broker is the controller.";
  const number = epoch < 0 ? "" : ` in epoch ${epoch}`;
  if (sinceMs === null) return `Broker ${controller} is the controller${number}. No journal has its election.`;
  const since = new Date(Number(sinceMs)).toISOString().slice(0, 19).replace("T", " ");
  // Brokers that start later lose as well.
  const rivals = new Set(lost.filter(({ atMs }) => atMs - sinceMs < RACE_MS).map(({ broker }) => broker));
  const against = rivals.size ? `, faster than ${[...rivals].join(", ")}` : "";
  const why = before ? ` Broker ${before.broker} had resigned: ${before.text}.` : "";
  return `Broker ${controller} is the controller${number} since ${since} UTC${against}.${why}`;
}

function failover({ controller, failover: steps }) {
  if (!steps.length) return null;
  const rows = steps.map(({ afterMs, text }, at) => el("tr", { "data-key": `step-${at}` },
    el("td", { class: "number" }, `+${duration(afterMs)}`), el("td", { class: "number" }, duration(afterMs - (steps[at - 1]?.afterMs ?? 0))), el("td", { class: "wrap" }, text)));
  return el("section", {}, el("h2", {}, "Failover"),
    el("p", {}, "Broker ", brokerLink(controller), ` took over within ${duration(steps.at(-1).afterMs)}.`),
    table("Steps of the failover", ["After", "Took", "Step"], rows));
}

function brokers({ controller, brokers: known, silent }) {
  const rows = known.map(({ broker, stands }) => el("tr", { "data-key": `broker-${broker}` },
    el("td", {}, brokerLink(broker)), el("td", {}, broker === controller ? "controller" : stands ? "may become the controller" : "never becomes the controller")));
  const others = silent.map(({ broker, reason }) => el("tr", { "data-key": `silent-${broker}`, class: "silent" },
    el("td", {}, brokerLink(broker)), el("td", {}, broker === controller && "controller; ", `journal not available: ${reason}`)));
  return el("section", {}, el("h2", {}, "Brokers"), table("Brokers and their journals", ["Broker", "Role"], [...rows, ...others]),
    silent.length > 0 && el("p", { class: "muted" }, "A broker of Apache Kafka keeps no journal: the time of its election, the steps of its failover, and the reason for its resignation cannot be shown. Attempts that others lost against it are shown."));
}

const epoch = ([head, ...lines], number, isOpen) =>
  el("details", { "data-key": `lines-${number}`, open: isOpen }, el("summary", {}, head),
    el("ol", { class: "lines" }, lines.map((line) => el("li", {}, line.trim()))));

function decisions({ decisions: all }) {
  const others = all.filter(({ kind }) => !["attempt", "failover", "resignation"].includes(kind));
  return others.length > 0 && el("details", { "data-key": "others" }, el("summary", {}, "Other decisions of controllers"),
    printed(others.map(({ atMs, broker, kind, text }) => `${clock(atMs)}  broker ${broker}  ${kind}: ${text}`)));
}

export const onClick = (event) => selection.onClick(event);
export const onFocus = (event) => selection.onFocus(event);
export const onKey = (event) => selection.onKey(event);
export const onDrawn = (root) => selection.followNewest(root);
