// Elections as lanes: one per node, time from left to right. Time is piecewise: steps of one
// election get room, and pauses are folded and labeled with their length. Every state has a color
// and a shape.

import { clock, duration, el, svg } from "./dom.js";

const LANE = 58;
const TOP = 46;
const FOLD_MS = 1000;
const CAUSES = { "pre-vote": 0, vote: 1, step: 2 };

// The events of all epochs in order: by epoch, then time, then cause (asked before won).
export function eventsOf(epochs) {
  const events = [];
  for (const epoch of epochs) {
    const own = [
      ...epoch.preVotes.map((vote) => ({ kind: "pre-vote", ...vote })),
      ...epoch.votes.map((vote) => ({ kind: "vote", ...vote })),
      ...epoch.steps.map((step) => ({ kind: "step", ...step })),
    ];
    own.sort((a, b) => a.at - b.at || CAUSES[a.kind] - CAUSES[b.kind] || a.node - b.node);
    own.forEach((event, at) => events.push({ ...event, epoch: epoch.epoch, key: `${epoch.epoch}-${at}` }));
  }
  return events;
}

// One event as a sentence, in the words of `explain quorum`.
export function sentenceOf(event) {
  if (event.kind !== "step") {
    const answer = event.granted ? "granted" : `refused: ${event.reason}`;
    return `${clock(event.at)}  ${event.node} was asked by ${event.candidate} for its ${event.kind}: ${answer}`;
  }
  const lasted = event.lastedMs < 0 ? "" : `, after ${event.lastedMs} ms`;
  const refused = event.refused.length ? ` (refused by ${event.refused.join(", ")})` : "";
  return `${clock(event.at)}  ${event.node} became ${event.state}: ${event.reason}${refused}${lasted}`;
}

// An epoch without events has a column if it `isShown`.
export function place(epochs, events) {
  const folds = [];
  const columns = [];
  const positions = [];
  let x = 24;
  let last = null;
  for (const epoch of epochs) {
    const own = events.filter((event) => event.epoch === epoch.epoch);
    if (!own.length) {
      if (epoch.isShown) columns.push({ epoch, from: x + 8, to: (x += 104) });
      continue;
    }
    const first = positions.length;
    own.forEach((event, at) => {
      if (last !== null) x += stepWidth(event.at - last, at === 0, folds, x);
      if (at === 0) columns.push({ epoch, from: x - 16 });
      positions.push(x);
      last = Math.max(last ?? event.at, event.at);
    });
    columns.at(-1).to = Math.max(positions.at(-1) + 16, positions[first] + 96);
    x = columns.at(-1).to;
  }
  return { positions, columns, folds, width: x + 30 };
}

export function stepWidth(ms, isNewEpoch, folds, x) {
  if (ms >= FOLD_MS) {
    const from = isNewEpoch ? x + 8 : x + 12;
    folds.push({ x: from + 32, label: duration(ms) });
    return isNewEpoch ? 96 : 88;
  }
  if (isNewEpoch) return 48;
  return ms <= 0 ? 16 : 18 + Math.min(40, 9 * Math.log2(1 + ms / 3));
}

export function drawLanes(quorum, selected) {
  const events = eventsOf(quorum.epochs);
  const ids = nodesOf(quorum, events);
  const { positions, columns, folds, width } = place(quorum.epochs, events);
  const height = TOP + ids.length * LANE + 8;
  const y = (id) => TOP + ids.indexOf(id) * LANE + LANE / 2;
  if (!events.length) {
    return el("p", { class: "muted" }, "No election is recorded. Only sparkraft's nodes keep journals of elections.");
  }
  const shown = selected ?? events.at(-1).key;
  const picture = svg("svg", { class: "lanes", width, height, role: "group", "aria-label": `Elections of ${ids.length} nodes over time; the text below has the same content` },
    columns.map((column) => drawColumn(column, height)),
    ids.map((id) => drawBands(id, events, positions, y(id), width)),
    folds.map((fold) => drawFold(fold, height)),
    events.map((event, at) => event.kind !== "step" && drawVote(event, positions[at], y, selected, shown)),
    events.map((event, at) => event.kind === "step" && drawStep(event, positions[at], y, selected, shown)));
  return el("div", { class: "lanes-frame" },
    drawLabels(quorum, ids, y, height),
    el("div", { class: "lanes-scroll", role: "region", "aria-label": "Elections over time", tabindex: "0" }, picture));
}

function nodesOf(quorum, events) {
  const ids = new Set(quorum.nodes.map((node) => node.id));
  for (const event of events) {
    ids.add(event.node);
    if (event.kind !== "step") ids.add(event.candidate);
  }
  return [...ids].sort((a, b) => a - b);
}

function drawLabels(quorum, ids, y, height) {
  return svg("svg", { class: "lane-labels", width: 104, height, "aria-hidden": "true" },
    ids.map((id) => {
      const node = quorum.nodes.find((one) => one.id === id);
      const state = node ? node.state.toLowerCase() : "no response";
      return svg("g", { class: node ? "" : "silent" },
        svg("text", { x: 8, y: y(id) - 3, class: "lane-name" }, `node ${id}`),
        svg("text", { x: 8, y: y(id) + 13, class: "lane-state" }, node && !node.isVoter ? "observer" : state));
    }));
}

function drawColumn({ epoch, from, to }, height) {
  const isOdd = epoch.verdict === "CONTRADICTION";
  const who = epoch.leader === null ? "no leader" : `leader ${epoch.leader}`;
  return svg("g", { class: isOdd ? "column odd" : "column", "data-key": `epoch-${epoch.epoch}`, "data-epoch": epoch.epoch },
    svg("rect", { x: from, y: 2, width: to - from, height: height - 4, rx: 6 }),
    svg("text", { x: from + 8, y: 18, class: "epoch-name" }, `epoch ${epoch.epoch}`),
    svg("text", { x: from + 8, y: 34, class: "epoch-leader" }, isOdd ? "CONTRADICTION" : who));
}

export function drawFold({ x, label }, height, top = TOP) {
  return svg("g", { class: "fold" },
    svg("path", { d: `M${x - 4} ${top}l-4 10 8 10 -8 10M${x + 4} ${top}l-4 10 8 10 -8 10M${x - 2} ${top + 30}V${height - 8}M${x + 6} ${top + 30}V${height - 8}` }),
    svg("text", { x: x + 1, y: top - 6, "text-anchor": "middle" }, label));
}

// A node's states as a band; before its first step the state is unknown.
function drawBands(id, events, positions, y, width) {
  const bands = [svg("path", { class: "lane-line", d: `M0 ${y}H${width}` })];
  let from = null;
  let state = null;
  const close = (to) => {
    if (state && state !== "resigned") {
      bands.push(svg("rect", { class: `band ${state}`, x: from, y: y - 5, width: Math.max(1, to - from), height: 10, rx: 3 }));
    }
  };
  events.forEach((event, at) => {
    if (event.kind !== "step" || event.node !== id) return;
    close(positions[at]);
    from = positions[at];
    state = event.state;
  });
  close(width);
  return svg("g", { class: "lane" }, bands);
}

export const SHAPES = {
  follower: (x, y) => svg("circle", { class: "mark follower", cx: x, cy: y, r: 6.5 }),
  prospective: (x, y) => svg("path", { class: "mark prospective", d: `M${x} ${y - 8}l8 8 -8 8 -8 -8z` }),
  candidate: (x, y) => svg("path", { class: "mark candidate", d: `M${x} ${y - 8}l8 14h-16z` }),
  leader: (x, y) => svg("circle", { class: "mark leader", cx: x, cy: y, r: 8.5 }),
  resigned: (x, y) => svg("path", { class: "mark resigned", d: `M${x - 6} ${y - 6}l12 12M${x + 6} ${y - 6}l-12 12` }),
  other: (x, y) => svg("rect", { class: "mark other", x: x - 6, y: y - 6, width: 12, height: 12, rx: 2 }),
};

function drawStep(event, x, y, selected, shown) {
  const shape = SHAPES[event.state] ?? SHAPES.other;
  return eventGroup(event, selected, shown,
    svg("circle", { class: "halo", cx: x, cy: y(event.node), r: 13 }), shape(x, y(event.node)));
}

function drawVote(event, x, y, selected, shown) {
  const from = y(event.node);
  const to = y(event.candidate);
  const tip = to + (from > to ? 9 : -9);
  const side = from > to ? 7 : -7;
  return eventGroup(event, selected, shown,
    svg("path", { class: "halo line", d: `M${x} ${from}V${tip}` }),
    svg("path", { class: `vote ${event.kind}${event.granted ? "" : " refused"}`, d: `M${x} ${from}V${tip}` }),
    event.granted
      ? svg("path", { class: "tip", d: `M${x} ${tip}l-4 ${side}h8z` })
      : svg("path", { class: "cross", d: `M${x - 4} ${(from + to) / 2 - 4}l8 8m0 -8l-8 8` }));
}

function eventGroup(event, selected, shown, ...shapes) {
  const sentence = sentenceOf(event);
  return svg("g", {
    class: event.key === selected ? "event selected" : "event", "data-key": `event-${event.key}`, "data-event": event.key,
    role: "button", tabindex: event.key === shown ? "0" : "-1", "aria-label": sentence,
  }, svg("title", {}, sentence), shapes);
}

export const legend = () =>
  el("ul", { class: "legend", "aria-label": "Shapes of the drawing" },
    ["unattached", "follower", "prospective", "candidate", "leader", "resigned"].map((state) =>
      el("li", {}, svg("svg", { width: 22, height: 22, "aria-hidden": "true" }, (SHAPES[state] ?? SHAPES.other)(11, 11)), state)),
    el("li", {}, svg("svg", { width: 26, height: 22, "aria-hidden": "true" }, svg("path", { class: "vote", d: "M13 2V20" })), "vote granted"),
    el("li", {}, svg("svg", { width: 26, height: 22, "aria-hidden": "true" }, svg("path", { class: "vote refused", d: "M13 2V20" })), "vote refused"),
    el("li", {}, svg("svg", { width: 26, height: 22, "aria-hidden": "true" }, svg("path", { class: "vote pre-vote", d: "M13 2V20" })), "pre-vote"));
