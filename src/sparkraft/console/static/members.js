// The members of a group over time: a lane for each, from joining to leaving, with its epochs, and
// lines for partitions that moved between members. Of many members those of the newest decisions
// have lanes; decisions about the others are in the text only. The height of a band and the number
// below it are the partitions that the member owns.

import { count, el, svg } from "./dom.js";
import { drawFold, stepWidth } from "./lanes.js";

const LANE = 40;
const TOP = 44;
const LABEL = 190;
const ENDS = new Set(["left", "fenced"]);
const SHOWN = 200;
const LANES = 60;

// The decisions that are drawn, the members with a lane, and how many members there are.
export function drawnOf(all) {
  const newest = all.slice(-SHOWN);
  const names = membersOf(newest);
  const recent = new Set(membersOf(newest.toReversed()).slice(0, LANES));
  return {
    decisions: withOwners(all, newest, recent).filter((one) => !one.member || recent.has(one.member)),
    names: names.filter((name) => recent.has(name)),
    memberCount: names.length,
  };
}

// Each decision with the partitions that the members of `names` own after it.
function withOwners(all, newest, names) {
  const owned = {};
  const begin = all.length - newest.length;
  return all.map((one, at) => {
    for (const [name, number] of Object.entries(one.owned)) if (names.has(name)) owned[name] = number;
    return at < begin ? null : { ...one, owned: new Map(Object.entries(owned)) };
  }).slice(begin);
}

export const keyOf = (one) => `${one.coordinator}-${one.number}`;

export function drawMembers({ decisions, names, memberCount }, selected) {
  const missing = memberCount - names.length;
  return [
    drawLanes(decisions, names, selected),
    missing > 0 && el("p", { class: "note", "data-key": "missing-members" },
      `${missing} of ${count(memberCount, "member")} ${missing === 1 ? "is" : "are"} not drawn: the text below has the decisions about all of them.`),
  ];
}

function drawLanes(decisions, names, selected) {
  const { positions, folds, width } = place(decisions);
  const height = TOP + Math.max(1, names.length) * LANE + 8;
  const ys = new Map(names.map((name, at) => [name, TOP + at * LANE + LANE / 2]));
  const y = (name) => ys.get(name);
  const most = Math.max(1, ...decisions.flatMap((one) => [...one.owned.values()]));
  const keys = decisions.map(keyOf);
  const shown = keys.includes(selected) ? selected : keys.at(-1);
  return el("div", { class: "lanes-frame" },
    svg("svg", { class: "lane-labels", width: LABEL, height, "aria-hidden": "true" },
      names.map((name) => svg("text", { x: 8, y: y(name) + 4, class: "lane-name" }, short(name)))),
    el("div", { class: "lanes-scroll", role: "region", "aria-label": "Decisions over time", tabindex: "0" },
      svg("svg", { class: "lanes", width, height, role: "group", "aria-label": "Members of the group over time; the text below has the same content" },
        epochs(decisions, positions, height),
        names.map((name) => svg("path", { class: "lane-line", d: `M0 ${y(name)}H${width}` })),
        names.map((name) => lane(name, decisions, positions, y(name), width, most)),
        folds.map((fold) => drawFold(fold, height, TOP)),
        decisions.map((one, at) => mark(one, positions[at], y, height, { key: keys[at], selected, shown })))));
}

const short = (name) => (name.length > 20 ? `${name.slice(0, 9)}…${name.slice(-9)}` : name);

function membersOf(decisions) {
  const names = new Set();
  for (const one of decisions) {
    if (one.member) names.add(one.member);
    for (const move of one.moves) for (const name of [move.from, move.to]) if (name) names.add(name);
  }
  return [...names];
}

function place(decisions) {
  const folds = [];
  const positions = [];
  let x = 24;
  let last = null;
  let epoch = null;
  for (const one of decisions) {
    if (last !== null) x += stepWidth(one.atMs - last, one.epoch !== epoch, folds, x);
    positions.push(x);
    last = Math.max(last ?? one.atMs, one.atMs);
    epoch = one.epoch;
  }
  return { positions, folds, width: x + 60 };
}

function epochs(decisions, positions, height) {
  const found = [];
  decisions.forEach((one, at) => {
    if (at && decisions[at - 1].epoch === one.epoch) found.at(-1).to = positions[at] + 16;
    else found.push({ epoch: one.epoch, from: positions[at] - 14, to: positions[at] + 16 });
  });
  return found.map(({ epoch, from, to }, at) => svg("g", { class: "column", "data-key": `column-${at}-${epoch}` },
    svg("rect", { x: from, y: 2, width: to - from, height: height - 4, rx: 5 }),
    svg("text", { x: from + 5, y: 17, class: "epoch-name" }, epoch)));
}

function lane(name, decisions, positions, y, width, most) {
  const bands = [];
  let from = 0;
  let isMember = !decisions.some((one) => one.kind === "joined" && one.member === name);
  let owned = 0;
  const close = (to, about) => {
    if (!isMember) return;
    const height = 6 + (16 * owned) / most;
    bands.push(svg("rect", { class: "band follower", x: from, y: y - height / 2, width: Math.max(1, to - from), height, rx: 3 }));
    if (owned) bands.push(svg("text", { class: "owned", x: from + 9, y: y + 19 }, `${about}${owned}`));
  };
  let about = "";
  decisions.forEach((one, at) => {
    const now = one.owned.get(name) ?? 0;
    const isOwn = one.member === name;
    if (now !== owned || (isOwn && (one.kind === "joined" || ENDS.has(one.kind)))) {
      close(positions[at], about);
      from = positions[at];
      if (isOwn && one.kind === "joined") isMember = true;
      if (isOwn && ENDS.has(one.kind)) isMember = false;
      owned = now;
      about = one.ownedIsExact ? "" : "~";
    }
  });
  close(width, about);
  return svg("g", { class: "lane" }, bands);
}

function mark(one, x, y, height, { key, selected, shown }) {
  const owns = one.member && one.owned.has(one.member) ? `; it owns ${one.ownedIsExact ? "" : "about "}${count(one.owned.get(one.member), "partition")}` : "";
  const sentence = `epoch ${one.epoch}: ${one.kind} ${one.member} ${one.chosen ?? ""} ${one.reason}${owns}`.replaceAll(/\s+/g, " ");
  return svg("g", {
    class: key === selected ? "event selected" : "event", "data-key": `event-${key}`, "data-event": key,
    role: "button", tabindex: key === shown ? "0" : "-1", "aria-label": sentence,
  }, svg("title", {}, sentence), svg("circle", { class: "halo", cx: x, cy: one.member ? y(one.member) : TOP - 12, r: 11 }), shape(one, x, one.member ? y(one.member) : TOP - 12), moves(one, x, y));
}

function shape(one, x, y) {
  if (one.kind === "joined") return svg("circle", { class: "mark leader", cx: x, cy: y, r: 7 });
  if (ENDS.has(one.kind)) return svg("path", { class: "mark resigned", d: `M${x - 6} ${y - 6}l12 12M${x + 6} ${y - 6}l-12 12` });
  if (one.kind === "leader") return svg("path", { class: "mark candidate", d: `M${x} ${y - 8}l8 14h-16z` });
  if (one.kind === "assignor") return svg("rect", { class: "mark prospective", x: x - 6, y: y - 6, width: 12, height: 12 });
  if (one.kind === "moved") return svg("path", { class: "mark leader", d: `M${x - 7} ${y}h10m-4 -5l5 5 -5 5` });
  return svg("circle", { class: "mark follower", cx: x, cy: y, r: 5 });
}

function moves(one, x, y) {
  const pairs = new Map();
  for (const { from, to } of one.moves) if (y(from) && y(to)) pairs.set(`${from} ${to}`, [from, to]);
  return [...pairs.values()].slice(0, 10).map(([from, to]) => svg("path", { class: "vote", d: `M${x} ${y(from)}V${y(to)}` }));
}

const KINDS = { joined: "joined", left: "left or fenced", leader: "leader chosen", assignor: "assignor chosen", moved: "took over partitions", epoch: "other decision" };

export const legend = () =>
  el("ul", { class: "legend", "aria-label": "Shapes of the drawing" },
    Object.entries(KINDS).map(([kind, name]) =>
      el("li", {}, svg("svg", { width: 22, height: 22, "aria-hidden": "true" }, shape({ kind }, 11, 11)), name)));
