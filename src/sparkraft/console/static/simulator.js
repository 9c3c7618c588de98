// A recorded simulation: the whole run as a strip, and a window of it in which nodes are lanes and
// messages are lines from the time and lane of the sender to those of the receiver.

import { commandLine, count, el, morph, svg } from "./dom.js";
import { SHAPES } from "./lanes.js";

const LANE = 62;
const TOP = 34;
const LEFT = 92;
const RIGHT = 24;
const STRIP = 14;
const SPANS = [20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];
const SPEEDS = [5, 20, 100, 500, 2000];
const CHUNK_MS = 500;
const CHUNKS_MAX = 60;
const LISTED_MAX = 400;
const FRAME_MS = 60;
const MARKS = new Set(["becomes", "starts", "stops", "pauses", "resumes", "fault", "violation"]);
const FAULTS = new Set(["fault", "stops", "pauses", "cuts"]);

let run = null;
let view = { at: 0, span: 200, fetches: false };
let speed = 100;
let selected = null;
let playing = null;
let problem = null;
const chunks = new Map();

const root = document.getElementById("screen");
const seconds = (ms) => `${(ms / 1000).toFixed(3)} s`;
const others = () => run.nodes.length;
const laneOf = (name) => (run.nodes.includes(name) ? run.nodes.indexOf(name) : others());
const clamp = (at) => Math.max(0, Math.min(Math.round(at), Math.max(0, run.endMs - view.span + 1)));

// ---- data

async function load(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error((await response.text()).trim() || response.statusText);
  return response.json();
}

const chunkKey = (index) => `${index}${view.fetches ? "+" : ""}`;

async function fetchChunk(index) {
  const key = chunkKey(index);
  if (chunks.has(key)) return;
  const at = index * CHUNK_MS;
  chunks.set(key, null);
  try {
    chunks.set(key, await load(`/window?from=${at}&to=${at + CHUNK_MS}&fetches=${view.fetches ? 1 : 0}`));
    problem = null;
  } catch (error) {
    chunks.delete(key);
    problem = `The page cannot read the run: ${error.message}`;
  }
  while (chunks.size > CHUNKS_MAX) chunks.delete(chunks.keys().next().value);
  draw();
}

// What the loaded parts say about the window.
function windowData() {
  const messages = new Map();
  const events = [];
  let omitted = 0;
  let isWhole = true;
  const last = Math.floor((view.at + view.span) / CHUNK_MS);
  for (let index = Math.floor(view.at / CHUNK_MS); index <= last; index += 1) {
    const chunk = chunks.get(chunkKey(index));
    if (!chunk) {
      isWhole = false;
      fetchChunk(index);
      continue;
    }
    omitted += chunk.omitted;
    chunk.events.forEach((event, place) => {
      if (event.t >= view.at && event.t < view.at + view.span) events.push({ ...event, key: `e${index}-${place}` });
    });
    for (const message of chunk.messages) {
      const end = message.ends.at(-1)?.t ?? run.endMs;
      if (message.t < view.at + view.span && end >= view.at) messages.set(message.id, message);
    }
  }
  fetchChunk(last + 1);
  return { events, messages: [...messages.values()].sort((a, b) => a.t - b.t || a.id - b.id), omitted, isWhole };
}

// The intervals in which each node has a state, is paused, or is down, over the whole run.
function intervalsOf(overview) {
  const found = run.nodes.map(() => []);
  const open = run.nodes.map(() => ({ state: null, since: 0, paused: null }));
  const close = (lane, to) => {
    const now = open[lane];
    if (now.state) found[lane].push({ from: now.since, to, state: now.state });
  };
  for (const event of overview) {
    const lane = run.nodes.indexOf(event.node);
    if (lane < 0) continue;
    const now = open[lane];
    if (event.kind === "becomes" || event.kind === "starts" || event.kind === "stops") {
      close(lane, event.t);
      now.state = event.kind === "becomes" ? event.state : event.kind === "starts" ? "unattached" : null;
      now.since = event.t;
    }
    if (event.kind === "pauses") now.paused = event.t;
    if ((event.kind === "resumes" || event.kind === "stops") && now.paused !== null) {
      found[lane].push({ from: now.paused, to: event.t, state: "paused" });
      now.paused = null;
    }
  }
  open.forEach((now, lane) => {
    close(lane, run.endMs);
    if (now.paused !== null) found[lane].push({ from: now.paused, to: run.endMs, state: "paused" });
  });
  return found;
}

function cutsOf(overview) {
  const found = [];
  let since = null;
  for (const event of overview) {
    if (event.kind !== "cuts") continue;
    if (since) found.push({ ...since, to: event.t });
    since = event.links.length ? { from: event.t, links: event.links } : null;
  }
  if (since) found.push({ ...since, to: run.endMs });
  return found;
}

// ---- sentences

function fateOf(message) {
  if (!message.ends.length) return "still under way at the end of the run";
  return message.ends
    .map((end) => (end.kind === "arrives" ? `arrives after ${end.t - message.t} ms` : `lost after ${end.t - message.t} ms`))
    .join(", ");
}

const sentenceOf = (item) =>
  item.ends ? `${seconds(item.t)}  ${item.text} (${fateOf(item)})` : `${seconds(item.t)}  ${item.text ?? cutText(item)}`;

function cutText(event) {
  if (!event.links.length) return "all links work";
  return `links cut: ${event.links.map(([from, to]) => `${from} to ${to}`).join(", ")}`;
}

function resultSentence() {
  const where = `${run.tier === "nodes" ? "whole nodes" : "bare raft cores"}, scenario ${run.scenario}`;
  const faults = run.overview.filter((event) => event.kind === "fault").length;
  const length = `${seconds(run.endMs)}, ${count(faults, "fault")}`;
  if (!run.result) return ["warning", `Seed ${run.seed} (${where}): the file has no result; the run was interrupted.`];
  if (run.result.invariant === null) return ["ok", `Seed ${run.seed} (${where}): every invariant held. ${length}.`];
  return ["critical", `Seed ${run.seed} (${where}): ${run.result.invariant} does not hold: ${run.result.text}. ${length}.`];
}

// ---- drawing

const width = () => Math.max(640, root.clientWidth - 44);

function drawStrip(intervals, cuts) {
  const w = width();
  const height = run.nodes.length * STRIP + 22;
  const x = (ms) => LEFT + ((w - LEFT - RIGHT) * ms) / Math.max(1, run.endMs);
  return svg("svg", { class: "strip", width: w, height, "data-strip": true, "aria-hidden": "true" },
    cuts.map((cut) => svg("rect", { class: "cut", x: x(cut.from), y: 0, width: Math.max(1, x(cut.to) - x(cut.from)), height })),
    run.nodes.map((name, lane) => [
      svg("text", { x: 8, y: lane * STRIP + 11 }, name),
      intervals[lane].map((one) => svg("rect", { class: `band ${one.state}`, x: x(one.from), y: lane * STRIP + 3, width: Math.max(1, x(one.to) - x(one.from)), height: 8 })),
    ]),
    run.overview.filter((event) => FAULTS.has(event.kind) || event.kind === "violation").map((event) =>
      svg("path", { class: event.kind === "violation" ? "violation" : "tick", d: `M${x(event.t)} ${height - 20}v8` })),
    svg("rect", { class: "view", x: x(view.at), y: 1, width: Math.max(3, x(view.at + view.span) - x(view.at)), height: height - 12, rx: 2 }));
}

function drawWindow({ events, messages }, intervals, cuts) {
  const w = width();
  const hasOthers = messages.some((one) => laneOf(one.node) === others() || laneOf(one.to) === others());
  const lanes = [...run.nodes, ...(hasOthers ? ["clients"] : [])];
  const height = TOP + lanes.length * LANE + 10;
  const to = view.at + view.span;
  const x = (ms) => LEFT + ((w - LEFT - RIGHT) * (ms - view.at)) / view.span;
  const y = (lane) => TOP + lane * LANE + LANE / 2;
  const inside = ({ from, to: until }) => from < to && until >= view.at;
  const bar = (one, top, thick, name) => {
    const from = Math.max(one.from, view.at);
    return svg("rect", { class: name, x: x(from), y: top, width: Math.max(1, x(Math.min(one.to, to)) - x(from)), height: thick });
  };
  const marks = events.filter((event) => MARKS.has(event.kind));
  const shown = selected ?? (marks[0]?.key || messages[0]?.id);
  return svg("svg", { class: "lanes simulated", width: w, height, role: "group", "aria-label": `${lanes.length} lanes from ${seconds(view.at)} to ${seconds(to)}; the list below has the same content` },
    svg("defs", {}, ["arrow", "arrow-selected"].map((id) =>
      svg("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto", class: id }, svg("path", { d: "M0 0L8 4L0 8z" })))),
    cuts.filter(inside).map((one) => [
      bar(one, 0, height, "cut"),
      svg("text", { class: "cut-name", x: Math.max(x(one.from), LEFT) + 4, y: 28 }, one.links.length > 4 ? `${one.links.length} links cut` : one.links.map(([a, b]) => `${a}✕${b}`).join(" ")),
    ]),
    ticksOf(view.at, to).map((ms) => svg("g", { class: "time" },
      svg("path", { d: `M${x(ms)} 16V${height - 6}` }), svg("text", { x: x(ms), y: 12, "text-anchor": "middle" }, seconds(ms)))),
    lanes.map((name, lane) => svg("g", { class: "lane" },
      svg("text", { class: "lane-name", x: 8, y: y(lane) + 4 }, name),
      svg("path", { class: "lane-line", d: `M${LEFT} ${y(lane)}H${w - RIGHT}` }),
      (intervals[lane] ?? []).filter(inside).map((one) => bar(one, y(lane) - (one.state === "paused" ? 9 : 5), one.state === "paused" ? 18 : 10, `band ${one.state}`)))),
    messages.map((message) => drawMessage(message, x, y, w, shown)),
    marks.map((event) => drawMark(event, x(event.t), laneOf(event.node), y, height, shown)));
}

function ticksOf(from, to) {
  const step = SPANS.find((ms) => (to - from) / ms <= 8) ?? 10000;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at < to; at += step) found.push(at);
  return found;
}

function drawMessage(message, x, y, w, shown) {
  const from = y(laneOf(message.node));
  const target = y(laneOf(message.to));
  const ends = message.ends.length ? message.ends : [{ t: run.endMs, kind: "lost" }];
  const isSelf = from === target;
  return group(message.id, sentenceOf(message), shown, `message${message.message.startsWith("Fetch ") ? " fetch" : ""}`,
    ends.map((end) => {
      const isLost = end.kind === "lost";
      // A lost message ends half way, at the time when it was found lost.
      const tip = isLost ? (from + target) / 2 : target + (target > from ? -8 : 8);
      const start = from + (target > from ? 6 : -6);
      const d = isSelf ? `M${x(message.t)} ${from}q6 -22 ${Math.max(8, x(end.t) - x(message.t))} -8` : `M${x(message.t)} ${start}L${Math.min(x(end.t), w * 4)} ${tip}`;
      return [
        svg("path", { class: "halo line", d }),
        svg("path", { class: isLost ? "line lost" : "line", d, "marker-end": isLost ? null : "url(#arrow)" }),
        isLost && svg("path", { class: "cross", d: `M${x(end.t) - 4} ${tip - 4}l8 8m0 -8l-8 8` }),
      ];
    }));
}

function drawMark(event, x, lane, y, height, shown) {
  const isNode = lane < others();
  if (event.kind === "violation") {
    return group(event.key, sentenceOf(event), shown, "mark-of violation",
      svg("path", { class: "violation", d: `M${x} 16V${height}` }), svg("circle", { class: "halo", cx: x, cy: 24, r: 9 }));
  }
  const at = isNode ? y(lane) : height - 8;
  const shape = event.kind === "becomes"
    ? (SHAPES[event.state] ?? SHAPES.other)(x, at)
    : svg("path", { class: `sign ${event.kind}`, d: SIGNS[event.kind](x, at) });
  return group(event.key, sentenceOf(event), shown, "mark-of", svg("circle", { class: "halo", cx: x, cy: at, r: 12 }), shape);
}

const SIGNS = {
  starts: (x, y) => `M${x - 5} ${y - 7}l11 7 -11 7z`,
  stops: (x, y) => `M${x - 7} ${y - 7}l14 14m0 -14l-14 14`,
  pauses: (x, y) => `M${x - 4} ${y - 8}v16m8 -16v16`,
  resumes: (x, y) => `M${x - 5} ${y - 6}l10 6 -10 6z`,
  fault: (x, y) => `M${x + 2} ${y - 10}l-7 11h5l-3 9 8 -12h-5z`,
};

function group(key, sentence, shown, name, ...shapes) {
  const isSelected = String(key) === String(selected);
  return svg("g", {
    class: `event ${name}${isSelected ? " selected" : ""}`, "data-key": `item-${key}`, "data-item": key,
    role: "button", tabindex: String(key) === String(shown) ? "0" : "-1", "aria-label": sentence,
  }, svg("title", {}, sentence), shapes);
}

const button = (name, action) => el("button", { type: "button", "data-action": action }, name);

function options(id, label, values, chosen, text) {
  return el("label", {}, `${label} `, el("select", { id }, values.map((value) => el("option", { value, selected: value === chosen }, text(value)))));
}

function draw() {
  const [level, sentence] = resultSentence();
  const intervals = intervalsOf(run.overview);
  const cuts = cutsOf(run.overview);
  const data = windowData();
  const items = itemsOf(data);
  const chosen = items.find((item) => String(item.key ?? item.id) === String(selected));
  const has = (kind) => run.overview.some((event) => event.kind === kind);
  morph(root, el("main", { id: "screen", tabindex: "-1" },
    el("h1", {}, "Simulated run"),
    el("p", { class: `health ${level}`, id: "result" }, el("span", { class: "sign" }, level === "ok" ? "✓" : "!"), el("span", {}, sentence)),
    problem && el("p", { class: "problem", role: "alert" }, problem),
    run.omitted > 0 && el("p", { class: "note" }, `${count(run.omitted, "event")} after ${seconds(run.overview.at(-1).t)} are not in this strip.`),
    el("div", { class: "scroll" }, drawStrip(intervals, cuts)),
    el("div", { class: "tools player" },
      button(playing === null ? "Play" : "Pause", "play"),
      button("Back", "back"),
      button("Forward", "forward"),
      button("Previous election", "election-back"),
      button("Next election", "election"),
      button("Next fault", "fault"),
      has("violation") && button("Violation", "violation"),
      el("label", { class: "wide" }, "Time ", el("input", { type: "range", id: "at", min: 0, max: Math.max(0, run.endMs - view.span + 1), step: 1, value: view.at, "aria-valuetext": seconds(view.at) })),
      options("span", "Window", SPANS, view.span, (ms) => (ms < 1000 ? `${ms} ms` : `${ms / 1000} s`)),
      options("speed", "Speed", SPEEDS, speed, (ms) => `${ms} ms a second`),
      el("label", {}, el("input", { type: "checkbox", id: "fetches", checked: view.fetches }), " Fetch messages")),
    data.omitted > 0 && el("p", { class: "note" }, `${count(data.omitted, "event")} of this part are not shown: choose a shorter window or leave out Fetch messages.`),
    el("div", { class: "scroll", role: "region", "aria-label": "The window", tabindex: "0" }, drawWindow(data, intervals, cuts)),
    legend(),
    el("p", { id: "chosen", class: "chosen", "aria-live": "polite" }, chosen ? sentenceOf(chosen) : "Select a shape or a line to read what it is."),
    el("p", { class: "muted" }, "Arrow keys step through the shapes and lines of the window in the order of time."),
    el("details", { "data-key": "list", open: true },
      el("summary", {}, `${seconds(view.at)} to ${seconds(view.at + view.span)}: ${data.isWhole ? count(items.length, "event") : "loading"}`),
      el("div", { class: "listed", role: "region", "aria-label": "Events of the window", tabindex: "0" },
        el("ol", { class: "lines" }, items.slice(0, LISTED_MAX).map((item) => el("li", {}, sentenceOf(item))))),
      items.length > LISTED_MAX && el("p", { class: "muted" }, `${items.length - LISTED_MAX} more; choose a shorter window.`)),
    run.command && commandLine(run.command, "The same as text: ")));
  remember();
}

function legend() {
  const icon = (shape) => svg("svg", { width: 26, height: 22, "aria-hidden": "true" }, shape);
  return el("ul", { class: "legend", "aria-label": "Shapes of the drawing" },
    ["follower", "prospective", "candidate", "leader", "resigned"].map((state) => el("li", {}, icon(SHAPES[state](13, 11)), state)),
    [["starts", "starts"], ["stops", "stops or is killed"], ["pauses", "is paused"], ["fault", "fault"]].map(([kind, name]) =>
      el("li", {}, icon(svg("path", { class: `sign ${kind}`, d: SIGNS[kind](13, 11) })), name)),
    el("li", {}, icon(svg("path", { class: "line", d: "M2 20L24 3" })), "message"),
    el("li", {}, icon(svg("path", { class: "line lost", d: "M2 20L24 3" })), "lost message"));
}

const itemsOf = ({ events, messages }) =>
  [...events, ...messages.filter((one) => one.t >= view.at)].sort((a, b) => a.t - b.t);

// ---- moving

function go(at) {
  view.at = clamp(at);
  draw();
}

function center(at) {
  go(at - view.span / 3);
}

// The next of the events that `wanted` accepts, seen from a third of the window.
function jump(wanted, step) {
  const here = view.at + view.span / 3;
  const found = run.overview.filter(wanted).map((event) => event.t);
  const next = step > 0 ? found.find((at) => at > here + 1) : found.findLast((at) => at < here - 1);
  if (next !== undefined) center(next);
}

const isElection = (event) => event.kind === "becomes" && event.state === "leader";
const ACTIONS = {
  back: () => go(view.at - view.span / 2),
  forward: () => go(view.at + view.span / 2),
  election: () => jump(isElection, 1),
  "election-back": () => jump(isElection, -1),
  fault: () => jump((event) => FAULTS.has(event.kind), 1),
  violation: () => center(run.overview.find((event) => event.kind === "violation").t),
  play: () => (playing === null ? play() : pause()),
};

function play() {
  if (view.at >= clamp(run.endMs)) view.at = 0;
  let last = performance.now();
  playing = setInterval(() => {
    const now = performance.now();
    const step = ((now - last) / 1000) * speed;
    if (step < 1) return;
    last = now;
    const wanted = clamp(view.at + step);
    if (wanted === view.at) pause();
    else go(wanted);
  }, FRAME_MS);
  draw();
}

function pause() {
  clearInterval(playing);
  playing = null;
  draw();
}

function select(key) {
  selected = key;
  draw();
  root.querySelector(`[data-item="${CSS.escape(key)}"]`)?.focus();
}

function step(key, by) {
  const keys = [...root.querySelectorAll("[data-item]")].map((node) => node.dataset.item);
  const order = itemsOf(windowData()).map((item) => String(item.key ?? item.id)).filter((one) => keys.includes(one));
  const rest = keys.filter((one) => !order.includes(one));
  const all = [...rest, ...order];
  const to = all[Math.max(0, Math.min(all.length - 1, all.indexOf(key) + by))];
  if (to !== undefined) select(to);
}

function remember() {
  if (playing !== null) return;
  const query = new URLSearchParams({ at: view.at, span: view.span });
  if (view.fetches) query.set("fetches", "1");
  history.replaceState(null, "", `?${query}`);
}

root.addEventListener("click", (event) => {
  const action = event.target.closest("[data-action]")?.dataset.action;
  if (action) ACTIONS[action]();
  const copied = event.target.closest("[data-copy]")?.dataset.copy;
  if (copied) navigator.clipboard.writeText(copied);
  const item = event.target.closest("[data-item]")?.dataset.item;
  if (item) select(item);
  const strip = event.target.closest("[data-strip]");
  if (strip) {
    const box = strip.getBoundingClientRect();
    center(((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * run.endMs);
  }
});
root.addEventListener("focusin", (event) => {
  const item = event.target.closest?.("[data-item]")?.dataset.item;
  if (item && item !== String(selected)) {
    selected = item;
    draw();
  }
});
root.addEventListener("keydown", (event) => {
  const item = event.target.closest?.("[data-item]")?.dataset.item;
  if (!item) return;
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (by) step(item, by);
  if (event.key === "Escape") {
    selected = null;
    draw();
  }
  if (by || event.key === "Escape") event.preventDefault();
});
root.addEventListener("input", (event) => {
  const { id, value, checked } = event.target;
  if (id === "at") go(Number(value));
  if (id === "speed") speed = Number(value);
  if (id === "fetches") view.fetches = checked;
  if (id === "span") {
    const middle = view.at + view.span / 2;
    view.span = Number(value);
    view.at = clamp(middle - view.span / 2);
  }
  if (id && id !== "at") draw();
});
window.addEventListener("resize", () => run && draw());

// The window begins at the first election, unless the address names a time.
async function start() {
  run = await load("/run");
  document.title = `Simulated run: seed ${run.seed}`;
  const query = new URLSearchParams(location.search);
  const number = (name) => (/^\d+$/.test(query.get(name) ?? "") ? Number(query.get(name)) : null);
  view.span = SPANS.includes(number("span")) ? number("span") : view.span;
  view.fetches = query.get("fetches") === "1";
  const first = run.overview.find((event) => event.kind === "violation") ?? run.overview.find(isElection);
  view.at = clamp(number("at") ?? (first ? first.t - view.span / 3 : 0));
  draw();
}

start().catch((error) => {
  root.replaceChildren(el("p", { class: "problem" }, `The page cannot read the run: ${error.message}`));
});
