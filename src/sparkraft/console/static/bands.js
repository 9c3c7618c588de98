// A partition over time: a band for its leader, and one for each replica (in sync, eligible, out),
// with a mark at each change. Time is piecewise, as in the lanes of the quorum.

import { el, svg } from "./dom.js";
import { drawFold, stepWidth } from "./lanes.js";

const LEADER_ROW = 40;
const ROW = 30;
const TOP = 48;

// Elections and ISR changes by offset; both may happen in one record.
export function changesOf(data) {
  const found = new Map();
  for (const election of data.elections) found.set(election.offset, { election, isr: null });
  for (const isr of data.isrChanges) found.set(isr.offset, { election: null, ...found.get(isr.offset), isr });
  return [...found.entries()]
    .sort(([a], [b]) => Number(a) - Number(b))
    .map(([offset, change]) => {
      const time = change.election?.time ?? change.isr?.time ?? null;
      return { ...change, offset, key: String(offset), time, at: time ? Date.parse(time) : null };
    });
}

export function sentenceOf({ election, isr, offset, time }) {
  const parts = [];
  const name = (id) => (id === null ? "none" : id);
  if (election) parts.push(`leader ${name(election.previous)} → ${name(election.leader)}, epoch ${election.leaderEpoch} (${election.kind})`);
  if (isr) parts.push(`in sync ${isr.before.join(", ") || "none"} → ${isr.after.join(", ") || "none"}`);
  return `${time ? `${time.slice(11, 23)}  ` : ""}offset ${offset}: ${parts.join("; ")}`;
}

// The state after each change; the first is the state before all changes that are known.
function statesOf(data, changes) {
  const firstElection = changes.find((one) => one.election)?.election;
  const firstIsr = changes.find((one) => one.isr)?.isr;
  const isMade = changes[0]?.election?.kind === "made";
  const states = [{
    leader: firstElection ? firstElection.previous : data.leader,
    epoch: firstElection ? firstElection.leaderEpoch - 1 : data.leaderEpoch,
    isr: firstIsr ? firstIsr.before : (data.isr ?? []), elr: [], exists: !isMade,
  }];
  changes.forEach(({ election, isr }, at) => {
    const last = states[at];
    states.push({
      leader: election ? election.leader : last.leader,
      epoch: (election ?? isr).leaderEpoch,
      isr: isr ? isr.after : last.isr,
      elr: isr ? isr.elr : last.elr,
      exists: true,
    });
  });
  if (data.exists) Object.assign(states.at(-1), { leader: data.leader, epoch: data.leaderEpoch, isr: data.isr, elr: data.elr });
  return states;
}

function place(changes) {
  const folds = [];
  const positions = [];
  let x = 70;
  let last = null;
  for (const { at } of changes) {
    if (positions.length) x += 26 + stepWidth(last === null || at === null ? 0 : at - last, false, folds, x + 10);
    positions.push(x);
    last = at ?? last;
  }
  return { positions, folds, width: x + 150 };
}

export function drawBands(data, changes, selected) {
  const ids = replicasOf(data, changes);
  const { positions, folds, width } = place(changes);
  const states = statesOf(data, changes);
  const height = TOP + LEADER_ROW + ids.length * ROW + 10;
  const y = (id) => TOP + LEADER_ROW + ids.indexOf(id) * ROW + ROW / 2;
  const ends = [0, ...positions, width];
  const shown = selected ?? changes.at(-1)?.key;
  const picture = svg("svg", { class: "lanes", width, height, role: "group", "aria-label": `Leaders and replicas of ${data.topic}-${data.partition} over time; the text below has the same content` },
    ids.map((id) => svg("path", { class: "lane-line", d: `M0 ${y(id)}H${width}` })),
    states.map((state, at) => state.exists && drawState(state, ends[at], ends[at + 1], ids, y, data)),
    folds.map((fold) => drawFold(fold, height, TOP)),
    changes.map((change, at) => drawChange(change, positions[at], height, y, { selected, shown })));
  return el("div", { class: "lanes-frame" },
    svg("svg", { class: "lane-labels", width: 104, height, "aria-hidden": "true" },
      svg("text", { x: 8, y: TOP + LEADER_ROW / 2 + 4, class: "lane-name" }, "leader"),
      ids.map((id) => svg("text", { x: 8, y: y(id) + 4, class: "lane-name" }, `replica ${id}`))),
    el("div", { class: "lanes-scroll", role: "region", "aria-label": "Changes over time", tabindex: "0" }, picture));
}

function replicasOf(data, changes) {
  const ids = new Set(data.replicas ?? []);
  for (const { election, isr } of changes) {
    for (const id of [...(election?.candidates ?? []), ...(isr?.before ?? []), ...(isr?.after ?? [])]) ids.add(id);
    if (election && election.leader !== null) ids.add(election.leader);
  }
  return [...ids].sort((a, b) => a - b);
}

function drawState(state, from, to, ids, y, data) {
  const middle = TOP + LEADER_ROW / 2;
  const isNone = state.leader === null;
  const wide = to - from > 88;
  return svg("g", {},
    svg("rect", { class: isNone ? "leads none" : `leads hue-${ids.indexOf(state.leader) % 6}`, x: from + 1, y: middle - 14, width: Math.max(1, to - from - 2), height: 28, rx: 5 }),
    svg("text", { x: (from + to) / 2, y: middle + 4, "text-anchor": "middle", class: isNone ? "leads-name none" : "leads-name" },
      isNone ? "none" : wide ? `${state.leader} · epoch ${state.epoch}` : state.leader),
    ids.map((id) => {
      const kind = state.isr.includes(id) ? "in-sync" : state.elr.includes(id) ? "eligible" : "out";
      const size = kind === "in-sync" ? 12 : kind === "eligible" ? 7 : 2;
      return svg("rect", { class: `member ${kind}`, x: from + 1, y: y(id) - size / 2, width: Math.max(1, to - from - 2), height: size, rx: 2 });
    }));
}

function drawChange(change, x, height, y, { selected, shown }) {
  const sentence = sentenceOf(change);
  const isUnclean = change.election && /unclean/.test(change.election.kind);
  return svg("g", {
    class: change.key === selected ? "event selected" : "event", "data-key": `event-${change.key}`, "data-event": change.key,
    role: "button", tabindex: change.key === shown ? "0" : "-1", "aria-label": sentence,
  },
  svg("title", {}, sentence),
  svg("path", { class: "halo line", d: `M${x} ${TOP - 16}V${height - 8}` }),
  svg("path", { class: isUnclean ? "change unclean" : "change", d: `M${x} ${TOP - 16}V${height - 8}` }),
  change.election && electionMark(change.election, x, TOP - 22, isUnclean),
  change.isr && isrMarks(change.isr, x, y));
}

const MARKS = {
  preferred: (x, y) => svg("rect", { class: "mark leader", x: x - 6, y: y - 6, width: 12, height: 12 }),
  reassignment: (x, y) => svg("path", { class: "mark prospective", d: `M${x} ${y - 8}l8 8 -8 8 -8 -8z` }),
  "eligible leader replica": (x, y) => svg("path", { class: "mark candidate", d: `M${x} ${y - 8}l8 14h-16z` }),
  made: (x, y) => svg("circle", { class: "mark follower", cx: x, cy: y, r: 6.5 }),
};

function electionMark(election, x, y, isUnclean) {
  if (isUnclean) return svg("path", { class: "mark resigned", d: `M${x - 6} ${y - 6}l12 12M${x + 6} ${y - 6}l-12 12` });
  return (MARKS[election.kind] ?? ((cx, cy) => svg("circle", { class: "mark leader", cx, cy, r: 7.5 })))(x, y);
}

const isrMarks = (isr, x, y) => [
  isr.left.map((id) => svg("path", { class: "tip left", d: `M${x} ${y(id) + 7}l-6 -11h12z` })),
  isr.joined.map((id) => svg("path", { class: "tip joined", d: `M${x} ${y(id) - 7}l-6 11h12z` })),
];

const LEGEND = [
  ["in sync", () => svg("rect", { class: "member in-sync", x: 2, y: 5, width: 20, height: 12, rx: 2 })],
  ["eligible (ELR)", () => svg("rect", { class: "member eligible", x: 2, y: 8, width: 20, height: 7, rx: 2 })],
  ["out of sync", () => svg("rect", { class: "member out", x: 2, y: 10, width: 20, height: 2, rx: 1 })],
  ["created", () => MARKS.made(12, 11)],
  ["leader lost or shut down", () => svg("circle", { class: "mark leader", cx: 12, cy: 11, r: 7.5 })],
  ["preferred", () => MARKS.preferred(12, 11)],
  ["reassignment", () => MARKS.reassignment(12, 11)],
  ["from the ELR", () => MARKS["eligible leader replica"](12, 11)],
  ["unclean", () => svg("path", { class: "mark resigned", d: "M6 5l12 12M18 5l-12 12" })],
  ["left the ISR", () => svg("path", { class: "tip left", d: "M12 17l-6 -11h12z" })],
  ["joined the ISR", () => svg("path", { class: "tip joined", d: "M12 5l-6 11h12z" })],
];

export const legend = () =>
  el("ul", { class: "legend", "aria-label": "Shapes of the drawing" },
    LEGEND.map(([name, shape]) => el("li", {}, svg("svg", { width: 24, height: 22, "aria-hidden": "true" }, shape()), name)));
