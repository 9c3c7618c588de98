// Resets of a group's offsets: the table is the dry run, and exactly it is committed.

import { commandLine, count, el, table } from "./dom.js";
import { partitionLink } from "./links.js";
import { may, post } from "./visitor.js";

const TO = { earliest: "the first record", latest: "the end", time: "a time (UTC)", offset: "an offset", shift: "a number of records on" };
const SHOWN = 500;
const empty = () => ({ group: "", to: "earliest", value: "", topic: "", plan: null, problem: null, done: null });
let state = empty();

export function draw(data) {
  if (!may("editor")) return null;
  if (state.group !== data.group) state = { ...empty(), group: data.group };
  const topics = [...new Set((data.offsets ?? []).map((one) => one.topic))];
  return el("details", { class: "send", "data-key": `reset-${data.group}` },
    el("summary", {}, "Reset offsets"),
    el("form", { "data-form": "reset-plan" },
      el("label", {}, "Partitions of ", el("select", { name: "topic" },
        el("option", { value: "" }, "all topics"), topics.map((name) => el("option", { value: name, selected: name === state.topic }, name)))),
      el("label", {}, "To ", el("select", { name: "to" }, Object.entries(TO).map(([value, text]) => el("option", { value, selected: value === state.to }, text)))),
      el("label", {}, "Value ", el("input", { name: "value", value: state.value, size: 22, placeholder: "time, offset or number", autocomplete: "off" })),
      el("button", { type: "submit" }, "Show the changes")),
    state.problem && el("p", { class: "problem", role: "alert" }, state.problem),
    state.plan && planned(state.plan),
    state.done && el("p", { role: "status" }, state.done));
}

function planned(plan) {
  const changed = plan.rows.filter((row) => Number(row.change ?? 1) !== 0);
  return el("section", {},
    el("p", {}, sentence(plan.rows)),
    table("Changes", ["Partition", "Now", "Then", "Change"], plan.rows.slice(0, SHOWN).map((row) =>
      el("tr", { "data-key": `reset-${row.topic}-${row.partition}` }, el("td", {}, partitionLink(row.topic, row.partition)),
        el("td", { class: "number" }, row.from ?? "—"), el("td", { class: "number" }, row.to, row.outsideLog !== null && ` (${row.outsideLog} is outside the log)`),
        el("td", { class: "number" }, row.change === null ? "new" : signed(row.change))))),
    plan.rows.length > SHOWN && el("p", { class: "muted" }, `and ${plan.rows.length - SHOWN} more partitions`),
    plan.isAllowed
      ? el("form", { "data-form": "reset-apply" }, el("button", { type: "submit", disabled: changed.length === 0 }, `Reset ${count(changed.length, "partition")}`))
      : el("p", { class: "note" }, `The group is ${plan.state}. Stop its members first: they would overwrite the offsets.`),
    commandLine(plan.command));
}

const signed = (change) => (Number(change) > 0 ? `+${change}` : String(change));

function sentence(rows) {
  const sum = (wanted) => rows.reduce((total, row) => total + Math.abs(wanted(Number(row.change ?? 0)) ? Number(row.change ?? 0) : 0), 0);
  const again = sum((change) => change < 0);
  const skipped = sum((change) => change > 0);
  if (!again && !skipped) return "Nothing changes for partitions with a committed offset.";
  return `${again ? `${count(again, "record")} would be read again` : ""}${again && skipped ? ", " : ""}${skipped ? `${count(skipped, "record")} would be skipped` : ""}.`;
}

// Whether the form was one of these.
export function submit(form, context) {
  const kind = form.dataset.form;
  if (kind !== "reset-plan" && kind !== "reset-apply") return false;
  (kind === "reset-plan" ? plan(form) : apply(context)).then(context.redraw);
  return true;
}

async function plan(form) {
  const { to, value, topic } = Object.fromEntries(new FormData(form));
  Object.assign(state, { to, value, topic, plan: null, done: null });
  const response = await post("/api/reset-plan", { group: state.group, to, value, topic: topic || null });
  await take(response, (found) => { state.plan = found; });
}

async function apply(context) {
  const offsets = state.plan.rows.filter((row) => Number(row.change ?? 1) !== 0).map((row) => [row.topic, row.partition, row.to]);
  const response = await post("/api/reset", { group: state.group, offsets });
  await take(response, (found) => Object.assign(state, { plan: null, done: `${count(found.partitions, "partition")} reset.` }));
  context.fetchedAt = 0;
}

async function take(response, onDone) {
  state.problem = response.ok ? null : (await response.text()).trim();
  if (response.ok) onDone(await response.json());
}
