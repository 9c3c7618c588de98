// The race for /controller as lanes: one per broker, a column per epoch. Time is piecewise, as in
// the lanes of a quorum.

import { clock, el, svg } from "./dom.js";
import { SHAPES, drawFold, place } from "./lanes.js";

const LANE = 58;
const TOP = 46;

// The events of all epochs in order; `epoch` is the place of the epoch in the list.
export const eventsOf = (epochs) =>
  epochs.flatMap(({ events }, epoch) => events.map((event) => ({ ...event, epoch, key: `${event.broker}-${event.at}-${event.text}` })));

export const sentenceOf = ({ at, text }) => `${clock(at)}  ${text}`;

export function drawRace({ epochs, brokers, silent, controller }, selected) {
  const events = eventsOf(epochs);
  if (!events.length)
    return el("p", { class: "muted" }, "No election is recorded. Only sparkraft's brokers keep journals of the controller.");
  const ids = [...new Set([...brokers, ...silent, ...events].map(({ broker }) => broker).concat(epochs.map((one) => one.controller)))].sort((a, b) => a - b);
  const { positions, columns, folds, width } = place(epochs.map((_, epoch) => ({ epoch, isShown: true })), events);
  const height = TOP + ids.length * LANE + 8;
  const y = (id) => TOP + ids.indexOf(id) * LANE + LANE / 2;
  const shown = selected ?? events.at(-1).key;
  const stateOf = (id) => (id === controller ? "controller" : brokers.some(({ broker }) => broker === id) ? "" : "no journal");
  return el("div", { class: "lanes-frame" },
    svg("svg", { class: "lane-labels", width: 104, height, "aria-hidden": "true" }, ids.map((id) =>
      svg("g", {}, svg("text", { x: 8, y: y(id) - 3, class: "lane-name" }, `broker ${id}`), svg("text", { x: 8, y: y(id) + 13, class: "lane-state" }, stateOf(id))))),
    el("div", { class: "lanes-scroll", role: "region", "aria-label": "Controllers over time", tabindex: "0" },
      svg("svg", { class: "lanes", width, height, role: "group", "aria-label": `The race of ${ids.length} brokers for the controller over time; the text below has the same content` },
        columns.map((column) => drawColumn(column, epochs, height)),
        ids.map((id) => svg("path", { class: "lane-line", d: `M0 ${y(id)}H${width}` })),
        columns.map((column, at) => drawReign(column, columns[at + 1]?.from ?? width, { epochs, events, positions, y })),
        folds.map((fold) => drawFold(fold, height)),
        events.map((event, at) => drawEvent(event, positions[at], y, { selected, shown })))));
}

function drawColumn({ epoch: { epoch }, from, to }, epochs, height) {
  const { epoch: number, controller } = epochs[epoch];
  const name = number === null ? "epoch ?" : `epoch ${number}`;
  return svg("g", { class: "column", "data-key": `epoch-${epoch}`, "data-epoch": number ?? "?" },
    svg("rect", { x: from, y: 2, width: to - from, height: height - 4, rx: 6 }),
    svg("text", { x: from + 8, y: 18, class: "epoch-name" }, name),
    svg("text", { x: from + 8, y: 34, class: "epoch-leader" }, `controller ${controller}`));
}

// From its election to its resignation, or to the next election.
function drawReign({ epoch: { epoch }, from }, next, { epochs, events, positions, y }) {
  const at = (kind) => events.findIndex((event) => event.epoch === epoch && event.kind === kind);
  const [won, ended] = [at("won"), at("resigned")];
  const begin = won < 0 ? from : positions[won];
  const end = ended < 0 ? next : positions[ended];
  return svg("rect", { class: "band leader", x: begin, y: y(epochs[epoch].controller) - 5, width: Math.max(1, end - begin), height: 10, rx: 3 });
}

function drawEvent(event, x, y, { selected, shown }) {
  return svg("g", {
    class: event.key === selected ? "event selected" : "event", "data-key": `event-${event.key}`, "data-event": event.key,
    role: "button", tabindex: event.key === shown ? "0" : "-1", "aria-label": event.text,
  }, svg("title", {}, event.text), svg("circle", { class: "halo", cx: x, cy: y(event.broker), r: 13 }), MARKS[event.kind](event, x, y));
}

const MARKS = {
  won: (event, x, y) => SHAPES.leader(x, y(event.broker)),
  lost: (event, x, y) => [
    svg("path", { class: "vote refused", d: `M${x} ${y(event.broker)}V${y(event.winner)}` }),
    SHAPES.candidate(x, y(event.broker)),
  ],
  failover: (event, x, y) => svg("rect", { class: "mark leader", x: x - 4, y: y(event.broker) - 4, width: 8, height: 8 }),
  resigned: (event, x, y) => SHAPES.resigned(x, y(event.broker)),
};

const NAMES = { won: "won /controller", lost: "lost, to the broker at the dashed line's end", failover: "step of the failover", resigned: "resigned" };

export const legend = () =>
  el("ul", { class: "legend", "aria-label": "Shapes of the drawing" },
    Object.entries(NAMES).map(([kind, name]) =>
      el("li", {}, svg("svg", { width: 22, height: 22, "aria-hidden": "true" }, MARKS[kind]({ broker: 11, winner: 11 }, 11, (at) => at)), name)));
