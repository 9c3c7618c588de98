// Records of a topic: seek, filter, follow, export. The address has everything, so that it can be
// shared; reading starts when the page opens and stops at once when asked to.

import { clock, commandLine, count, el, table } from "./dom.js";
import { topicLink } from "./links.js";
import * as send from "./send.js";
import { asLines, indented } from "./text.js";
import { may } from "./visitor.js";

export const kinds = [];
export const title = ({ topic }) => `Messages of ${topic}`;

const ROWS_MAX = 1000;
const DRAW_MS = 150;
const MODES = {
  latest: "Newest", earliest: "Oldest", "from-offset": "From offset", "to-offset": "Up to offset",
  "from-time": "From time (UTC)", "to-time": "Up to time (UTC)", tail: "Follow",
};
const FORMS = {
  auto: "By schema, JSON, text or hex", text: "Text", hex: "Hex", int: "Integer", avro: "Avro", protobuf: "Protobuf", messagepack: "MessagePack",
};
const OBJECTS = ["json", "avro", "protobuf", "messagepack"];

const state = { address: "", records: [], progress: null, end: null, problem: null, stop: null, open: new Set() };

export function draw(context) {
  const { params, query } = context;
  if (state.address !== context.address) start(context, false);
  return [
    el("h1", {}, topicLink(params.topic), " / messages"),
    form(params.topic, query),
    el("p", { id: "scan", role: "status", class: "muted" }, summary(query)),
    state.problem && el("p", { class: "problem", role: "alert" }, state.problem),
    el("p", { class: "tools" },
      state.stop && el("button", { type: "button", "data-action": "stop" }, "Stop"),
      !state.stop && el("button", { type: "button", "data-action": "again" }, "Read again"),
      state.end && !state.end.isDone && el("button", { type: "button", "data-action": "more" }, "Continue"),
      el("a", { href: `/api/export?${parameters(params.topic, query, 100_000)}`, download: `${params.topic}.jsonl` }, "Export as JSON lines")),
    send.draw(params.topic),
    list(),
    command(),
  ];
}

function form(topic, query) {
  const mode = query.get("mode") ?? "latest";
  const hasPlace = mode.endsWith("offset") || mode.endsWith("time");
  const option = (value, text, chosen) => el("option", { value, selected: value === chosen }, text);
  return el("form", { class: "tools", "data-form": "messages", action: `/topics/${encodeURIComponent(topic)}/messages` },
    el("label", {}, "Show ", el("select", { name: "mode" }, Object.entries(MODES).map(([value, text]) => option(value, text, mode)))),
    hasPlace && el("label", {}, mode.endsWith("time") ? "Time " : "Offset ",
      el("input", { name: "at", value: query.get("at") ?? "", placeholder: mode.endsWith("time") ? "2026-01-31 12:00:00" : "0", size: 20 })),
    el("label", {}, "Partitions ", el("input", { name: "partitions", value: query.get("partitions") ?? "", placeholder: "all", size: 6 })),
    el("label", {}, "Records ", el("input", { name: "count", value: query.get("count") ?? "100", size: 5, inputmode: "numeric" })),
    [["keyForm", "Keys as "], ["form", "Values as "]].map(([name, label]) =>
      el("label", {}, label, el("select", { name }, Object.entries(FORMS).map(([value, text]) => option(value, text, query.get(name) ?? "auto"))))),
    el("label", { class: "wide" }, "Filter ", el("input", { name: "filter", value: query.get("filter") ?? "", placeholder: 'record.value.origin == "JFK"', spellcheck: "false" })),
    el("label", {}, el("input", { type: "checkbox", name: "isolation", value: "read_uncommitted", checked: query.get("isolation") === "read_uncommitted" }), " with uncommitted"),
    el("button", { type: "submit" }, "Read"));
}

function summary(query) {
  const now = state.end ?? state.progress;
  if (!now) return state.stop ? "Reading …" : "";
  const errors = now.errors ? `, ${count(now.errors, "error")} of the filter (the first: ${now.firstError})` : "";
  const passed = now.passed ? `, ${now.passed.toLocaleString("en-US")} more passed` : "";
  const ending = state.end ? (state.end.isDone ? "; that is all" : "") : state.stop ? " …" : "; stopped";
  return `${count(now.scanned, "record")} read, ${now.matched.toLocaleString("en-US")} shown${passed}${errors}${ending}`;
}

function command() {
  const now = state.end ?? state.progress;
  return now && [commandLine(now.command), now.note && el("p", { class: "muted" }, now.note)];
}

// ---- reading

function parameters(topic, query, countMax = ROWS_MAX) {
  const values = new URLSearchParams({ topic });
  for (const name of ["mode", "at", "partitions", "form", "keyForm", "filter", "isolation"]) {
    if (query.get(name)) values.set(name, query.get(name));
  }
  values.set("count", String(Math.max(1, Math.min(countMax, Number(query.get("count")) || 100))));
  return values;
}

async function start(context, isMore) {
  halt();
  const resume = isMore ? state.end?.resume : "";
  Object.assign(state, { address: context.address, records: isMore ? state.records : [], progress: null, end: null, problem: null });
  const values = parameters(context.params.topic, context.query);
  if (resume) values.set("resume", resume);
  const abort = new AbortController();
  state.stop = () => abort.abort();
  const isOld = () => state.address !== context.address || abort.signal.aborted;
  try {
    const response = await fetch(`/api/messages?${values}`, { signal: abort.signal });
    if (!response.ok) throw new Error(await response.text());
    let drawnAt = 0;
    for await (const line of asLines(response.body)) {
      if (isOld()) return;
      if (line.record) add(line.record, context.query.get("mode") === "tail");
      if (line.progress) state.progress = line.progress;
      if (line.end) state.end = line.end;
      if (line.problem) state.problem = line.problem;
      if (Date.now() - drawnAt < DRAW_MS) continue;
      drawnAt = Date.now();
      context.redraw();
    }
  } catch (error) {
    if (!isOld()) state.problem = error.message;
  }
  if (isOld()) return;
  state.stop = null;
  context.redraw();
}

function add(record, isTail) {
  if (isTail) {
    state.records.unshift(record);
    state.records.length = Math.min(state.records.length, ROWS_MAX);
  } else if (state.records.length < ROWS_MAX) {
    state.records.push(record);
  }
}

function halt() {
  state.stop?.();
  state.stop = null;
}

// The page shows another screen, or is hidden: it must not hold a connection.
export function leave() {
  halt();
  state.address = "";
}

export const onHidden = halt;

// A list has the first bytes of large records: put all of one into the place of these.
async function showWhole(record, context) {
  const values = parameters(context.params.topic, context.query);
  for (const [name, value] of Object.entries({ mode: "from-offset", at: record.offset, partitions: record.partition, count: 1, whole: 1 })) values.set(name, value);
  values.delete("filter");
  try {
    const response = await fetch(`/api/messages?${values}`);
    if (!response.ok) throw new Error(await response.text());
    for await (const { record: found, problem } of asLines(response.body)) {
      if (problem) throw new Error(problem);
      if (found && keyOf(found) === keyOf(record)) Object.assign(record, found, { isWhole: true });
    }
    if (!record.isWhole) throw new Error("The record is not in the log any more.");
  } catch (error) {
    state.problem = error.message;
  }
  context.redraw();
}

// ---- records

const keyOf = ({ partition, offset }) => `${partition}-${offset}`;

function list() {
  if (!state.records.length) return null;
  return table("Messages", ["Time (UTC)", "Partition", "Offset", "Key", "Value"],
    state.records.slice(0, ROWS_MAX).map((one) => {
      const key = `record-${keyOf(one)}`;
      return el("tr", { "data-key": key },
        el("td", {}, day(one.timestamp), " ", clockOf(one.timestamp)),
        el("td", { class: "number" }, one.partition),
        el("td", { class: "number" }, one.offset),
        el("td", { class: "part" }, short(shownPart(one, "key"))),
        el("td", { class: "part" }, el("details", { "data-key": `${key}-more`, "data-record": key }, el("summary", {}, short(shownPart(one, "value"))), state.open.has(key) && more(one))));
    }));
}

const isTime = (ms) => Number.isFinite(Number(ms)) && Math.abs(Number(ms)) < 8.64e15;
const day = (ms) => (isTime(ms) ? new Date(Number(ms)).toISOString().slice(0, 10) : String(ms));
const clockOf = (ms) => (isTime(ms) ? clock(Number(ms)) : "");

// Records of internal topics are shown decoded.
function shownPart(one, name) {
  const decoded = one.decoded?.[name];
  return decoded === null || decoded === undefined ? one[name] : { form: "json", text: JSON.stringify(decoded) };
}

function short(part) {
  if (part.form === "null") return el("em", { class: "muted" }, "null");
  const text = part.text.length > 120 ? `${part.text.slice(0, 120)}…` : part.text;
  return el("code", {}, text || "(empty)");
}

function more(one) {
  const isCut = [one.key, one.value, ...one.headers.map(([, part]) => part)].some((part) => part.isCut);
  return [
    isCut && !one.isWhole && el("button", { type: "button", "data-whole": keyOf(one) }, "Show the whole record"),
    one.decoded && whole("Decoded", { form: "json", text: JSON.stringify(one.decoded), size: null }),
    whole("Key", one.key),
    whole("Value", one.value),
    one.headers.map(([name, part]) => whole(`Header ${name}`, part)),
    one.headerCount > one.headers.length && el("p", { class: "muted" }, `and ${count(one.headerCount - one.headers.length, "more header")}`),
    one.batch && el("p", { class: "muted" }, batchOf(one.batch)),
    el("p", { class: "muted" }, `${one.timestampType}, leader epoch ${one.leaderEpoch}${one.isMasked ? ", some fields are hidden by the console's configuration" : ""}`),
    may("editor") && send.isEditable(one) && el("button", { type: "button", "data-edit": keyOf(one) }, "Edit and send again"),
  ];
}

// How the record is stored, and by which producer.
function batchOf({ baseOffset, lastOffset, count: records, size, compression, producerId, producerEpoch, sequence, isTransactional }) {
  const producer = Number(producerId) < 0 ? "" : `; producer id ${producerId}, epoch ${producerEpoch}, sequence number ${sequence}${isTransactional ? ", in a transaction" : ""}`;
  return `Batch of offsets ${baseOffset} to ${lastOffset}: ${count(records, "record")}, ${count(size, "byte")}, ${compression === "none" ? "not compressed" : compression}${producer}.`;
}

const whole = (name, part) =>
  el("div", { class: "whole" },
    el("span", { class: "muted" }, `${name}${part.size === null ? "" : ` · ${part.form}, ${count(part.size, "byte")}${part.isCut ? ", the first are shown" : ""}`}${part.note ? ` · ${part.note}` : ""}`),
    el("pre", { tabindex: "0" }, OBJECTS.includes(part.form) && !part.isCut ? (part.indented ??= indented(part.text)) : part.text));

// ---- input

export function onClick(event, context) {
  const record = event.target.closest("summary")?.parentNode.dataset.record;
  if (record) {
    if (!state.open.delete(record)) state.open.add(record);
    return true;
  }
  const edited = event.target.dataset.edit;
  if (edited) {
    send.edit(context.params.topic, state.records.find((one) => keyOf(one) === edited));
    return true;
  }
  const { whole: wanted } = event.target.dataset;
  if (wanted) {
    showWhole(state.records.find((one) => keyOf(one) === wanted), context);
    return true;
  }
  const action = event.target.closest("[data-action]")?.dataset.action;
  if (action === "stop") halt();
  else if (action === "again") start(context, false);
  else if (action === "more") start(context, true);
  else return false;
  return true;
}

export function onSubmit(event, context) {
  if (event.target.dataset.form === "send") {
    send.submit(event.target, context);
    return null;
  }
  if (event.target.dataset.form !== "messages") return null;
  const values = new URLSearchParams();
  for (const [name, value] of new FormData(event.target)) if (value) values.set(name, value);
  return `${event.target.getAttribute("action")}?${values}`;
}

// The place is asked for only by the modes that have one.
export function onInput(event, context) {
  if (event.target.name !== "mode") return false;
  context.query.set("mode", event.target.value);
  state.address = context.address;
  return true;
}
