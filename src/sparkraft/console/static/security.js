// Access control entries, users and quotas, and who may do something to a resource.

import { changeForm, field } from "./change.js";
import { commandLine, el, table } from "./dom.js";
import { atOf } from "./links.js";
import { may } from "./visitor.js";

export const kinds = ["problem"];
export const title = () => "Security";
export const hasPast = true;
export const source = (_, query) => `/api/security${atOf(query).replace("&", "?")}`;

const question = { operation: "READ", type: "TOPIC", name: "", at: "", answer: null, problem: null };

export function draw({ data, query, problem }) {
  const head = el("h1", {}, "Security");
  if (!data) return [head, !problem && el("p", { class: "muted" }, "Loading …")];
  // An answer is about one moment.
  if (question.at !== atOf(query)) Object.assign(question, { at: atOf(query), answer: null, problem: null });
  const canChange = !query.has("as-of");
  return [head, who(data), acls(data, canChange), users(data.users), quotas(data.quotas, canChange), data.commands.map((one) => commandLine(one))];
}

const words = (name) => name.toLowerCase().replaceAll("_", " ");
const select = (label, name, options, chosen) =>
  el("label", {}, `${label} `, el("select", { name }, options.map((one) => el("option", { value: one, selected: one === chosen }, words(one)))));

// ---- who may?

const who = (data) =>
  el("section", {}, el("h2", {}, "Who may …?"),
    el("form", { class: "tools", "data-form": "who-may" },
      select("Operation", "operation", data.operations, question.operation), select("On", "type", data.resourceTypes, question.type),
      el("label", {}, "Name ", el("input", { name: "name", value: question.name, size: 24, autocomplete: "off", spellcheck: "false" })),
      el("button", { type: "submit" }, "Show")),
    question.problem && el("p", { class: "problem", role: "alert" }, question.problem),
    question.answer && answer(question.answer));

const answer = (found) =>
  el("div", { id: "who-may" },
    el("p", { class: "muted" }, found.isCovered
      ? "By the entries below. Besides, super users may do everything; nodes do not name them."
      : "No entry fits this resource: all may use it if allow.everyone.if.no.acl.found is set, else only super users."),
    table("Who may", ["Principal", "From", "May", "Because"], found.verdicts.map((one) =>
      el("tr", { "data-key": `who-${one.principal}-${one.host}` }, el("td", {}, one.principal), el("td", {}, one.host === "all others" ? "any address" : one.host),
        el("td", { class: one.isAllowed ? "ok" : "bad" }, one.isAllowed ? "✓ yes" : found.isCovered ? "✕ no" : "—"),
        el("td", { class: "wrap" }, one.entry ?? (found.isCovered ? "no entry allows it" : "no entry"))))),
    found.isCut && el("p", { class: "muted" }, "and more"),
    commandLine(found.command));

async function ask(values, context) {
  Object.assign(question, values, { name: values.name.trim(), answer: null, problem: null });
  const { operation, type, name, at } = question;
  const response = await fetch(`/api/who-may?${new URLSearchParams({ operation, type, name })}${at}`);
  if (at !== question.at) return;
  if (response.ok) question.answer = await response.json();
  else question.problem = (await response.text()).trim();
  context.redraw();
}

export function onSubmit(event, context) {
  if (event.target.dataset.form === "who-may") ask(Object.fromEntries(new FormData(event.target)), context);
  return null;
}

// ---- the lists

const part = (name, { problem, rows, more }, heads, row) =>
  el("section", {}, el("h2", {}, name),
    problem ? el("p", { class: "note" }, problem) : rows.length ? table(name, heads, rows.map(row)) : el("p", { class: "muted" }, "None."),
    more > 0 && el("p", { class: "muted" }, `and ${more} more`));

function acls(data, canChange) {
  const hasForms = canChange && may("editor");
  const remove = (one) => changeForm(`remove-acl-${one.sentence}`, "Remove", [], () => ({ kind: "remove-acl", ...one }));
  return [
    part("Access control entries", data.acls, ["Principal", "From", "Permission", "Operation", "Resource", ...(hasForms ? ["Change"] : [])], (one) =>
      el("tr", { "data-key": `acl-${one.sentence}` }, el("td", {}, one.principal), el("td", {}, one.host === "*" ? "any address" : one.host),
        el("td", { class: one.permission === "DENY" ? "bad" : "ok" }, words(one.permission)), el("td", {}, words(one.operation)),
        el("td", {}, `${words(one.resourceType)}${one.patternType === "PREFIXED" ? " with the prefix" : ""} `, el("code", {}, one.resourceName)),
        hasForms && el("td", { class: "wrap" }, remove(one)))),
    canChange && !data.acls.problem && changeForm("add-acl", "Add an entry", [
      select("Permission", "permission", ["ALLOW", "DENY"]), field("Principal", "principal", { placeholder: "User:alice", size: 24, required: true }),
      field("From", "host", { placeholder: "any address", size: 18 }), select("Operation", "operation", data.operations, "READ"),
      select("On", "resourceType", data.resourceTypes, "TOPIC"), select("Name is", "patternType", ["LITERAL", "PREFIXED"]), field("Name", "resourceName", { size: 24 }),
    ], (values) => ({ kind: "add-acl", ...values })),
  ];
}

const users = (found) =>
  part("Users with SCRAM credentials", found, ["User", "Credentials"], (one) =>
    el("tr", { "data-key": `user-${one.user}` }, el("td", {}, one.user), el("td", {}, one.credentials.map((each) => `${each.mechanism} (${each.iterations} iterations)`).join(", "))));

const entityText = (entity) => entity.map(({ type, name }) => (name === null ? `default ${type}` : `${type} ${name}`)).join(" and ");

const quotas = (found, canChange) => [
  part("Quotas", found, ["Of", "Quotas"], (one) =>
    el("tr", { "data-key": `quota-${entityText(one.entity)}` }, el("td", {}, entityText(one.entity)),
      el("td", {}, Object.entries(one.quotas).map(([name, value]) => el("div", {}, el("code", {}, name), ` ${Number(value).toLocaleString("en-US")}`))))),
  canChange && !found.problem && changeForm("alter-quota", "Set a quota", [
    field("User", "user", { placeholder: "none", size: 18 }), field("Client id", "client", { placeholder: "none", size: 18 }), field("Address", "ip", { placeholder: "none", size: 18 }),
    el("p", { class: "muted" }, "A star stands for the default of all users, client ids or addresses."),
    el("label", {}, "Quota ", el("select", { name: "quota" },
      ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"].map((one) => el("option", { value: one }, one)))),
    field("Value", "value", { placeholder: "empty removes it", size: 18, inputmode: "numeric" }),
  ], ({ user, client, ip, quota, value }) => ({
    kind: "alter-quota", quota, value: value.trim() === "" ? null : value.trim(),
    entity: Object.entries({ user, "client-id": client, ip }).filter(([, name]) => name.trim()).map(([type, name]) => ({ type, name: name.trim() === "*" ? null : name.trim() })),
  })),
];
