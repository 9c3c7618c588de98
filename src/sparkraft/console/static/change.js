// Changes of the cluster by an editor: a form, the plan that the cluster validated, and exactly that.

import { commandLine, el, table } from "./dom.js";
import { may, post } from "./visitor.js";

const states = new Map();
const wishes = new Map();
let applying = 0;
const empty = () => ({ wish: null, plan: null, problem: null, done: null });

// Whether a change is being applied: the document of a screen may be of something that is deleted.
export const isApplying = () => applying > 0;

// A form for a change, closed at first. `key` names it in all screens, `wishOf` makes the document of the
// request from the values of `fields`; it may throw an Error with a sentence.
export function changeForm(key, summary, fields, wishOf) {
  if (!may("editor")) return null;
  wishes.set(key, wishOf);
  return el("details", { class: "send", "data-key": `change-${key}` },
    el("summary", {}, summary),
    el("form", { "data-form": "change-plan", "data-change": key }, fields, el("button", { type: "submit" }, "Show the change")),
    outcome(key));
}

// What came of a form: a problem, the plan with a button, or what was done.
export function outcome(key) {
  const { plan, problem, done } = states.get(key) ?? empty();
  return [
    problem && el("p", { class: "problem", role: "alert" }, problem),
    plan && planned(key, plan),
    done && el("p", { role: "status" }, `Done: ${done}.`),
  ];
}

function planned(key, plan) {
  return el("section", { class: "plan", "data-key": `plan-${key}`, "aria-live": "polite" },
    el("p", {}, plan.sentence),
    plan.rows.length > 0 && table("What differs", ["Of", "Now", "Then"], plan.rows.map((row) =>
      el("tr", {}, el("td", {}, row.what), el("td", { class: "wrap" }, row.from ?? "—"), el("td", { class: "wrap" }, row.to ?? "—")))),
    plan.moreRows > 0 && el("p", { class: "muted" }, `and ${plan.moreRows} more`),
    plan.warnings.map((text) => el("p", { class: "note" }, text)),
    el("form", { "data-form": "change-apply", "data-change": key },
      plan.confirm !== null && el("label", {}, `Type ${plan.confirm} to confirm `, el("input", { name: "confirm", autocomplete: "off", spellcheck: "false", required: true })),
      el("button", { type: "submit" }, "Apply")),
    plan.command ? commandLine(plan.command) : el("p", { class: "muted" }, "No single command line does the same."));
}

// Whether the form was one of these.
export function submit(form, context) {
  const { form: kind, change: key } = form.dataset;
  if (kind !== "change-plan" && kind !== "change-apply") return false;
  const values = Object.fromEntries(new FormData(form));
  (kind === "change-plan" ? plan(key, values) : apply(key, values, context)).then(context.redraw);
  return true;
}

async function plan(key, values) {
  const state = empty();
  states.set(key, state);
  try {
    state.wish = wishes.get(key)(values);
  } catch (error) {
    state.problem = error.message;
    return;
  }
  const response = await post("/api/change-plan", state.wish);
  const found = response.ok ? await response.json() : { problem: (await response.text()).trim() };
  if (found.problem) state.problem = found.problem;
  else state.plan = found;
}

async function apply(key, { confirm }, context) {
  const state = states.get(key);
  applying++;
  const response = await post("/api/change", { ...state.wish, confirm: confirm?.trim() }).finally(() => applying--);
  if (!response.ok) state.problem = (await response.text()).trim();
  else if (state.wish.kind === "delete-topic") {
    states.set("topics", { ...empty(), done: (await response.json()).done });
    context.go("/topics");
  } else Object.assign(state, empty(), { done: (await response.json()).done });
  context.fetchedAt = 0;
}

export const field = (label, name, attributes = {}) =>
  el("label", {}, `${label} `, el("input", { name, size: 12, autocomplete: "off", spellcheck: "false", ...attributes }));

export const numberField = (label, name, attributes = {}) => field(label, name, { inputmode: "numeric", size: 6, ...attributes });

// A list of broker ids as a reader types it.
export function brokersOf(text) {
  const ids = text.split(/[\s,]+/).filter(Boolean);
  if (!ids.length || !ids.every((id) => /^\d{1,10}$/.test(id))) throw new Error(`Expected ids of brokers such as 1, 2, 3, and not “${text}”.`);
  return ids.map(Number);
}
