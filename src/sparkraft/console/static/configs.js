// The configs of a topic, a broker, all brokers or a group: values, sources, defaults, documentation.

import { changeForm, field } from "./change.js";
import { commandLine, count, el, table } from "./dom.js";
import { atOf, brokerLink, groupLink, topicLink } from "./links.js";
import { may } from "./visitor.js";

export const kinds = ["problem"];
const of = (query) => ({ resource: query.get("resource") ?? "broker", name: query.get("name") ?? "" });
const named = ({ resource, name }) => (name ? `${resource} ${name}` : "all brokers");
export const title = (_, query) => `Configs of ${named(of(query))}`;
export const hasPast = true;
export const source = (_, query) => `/api/configs?${new URLSearchParams(of(query))}${atOf(query)}`;

const LINKS = { topic: topicLink, broker: brokerLink, group: groupLink };
let edited = null;

export function leave() {
  edited = null;
}

export function draw({ data, query, problem }) {
  const { resource, name } = of(query);
  const head = el("h1", {}, "Configs of ", name ? [`${resource} `, LINKS[resource]?.(name) ?? name] : "all brokers");
  if (!data) return [head, !problem && el("p", { class: "muted" }, "Loading …")];
  const wanted = (query.get("find") ?? "").toLowerCase();
  const isAll = query.get("all") === "1" || wanted !== "";
  const shown = data.configs.filter((one) => (isAll || !one.isDefault) && one.name.toLowerCase().includes(wanted));
  const canChange = may("editor") && !query.has("as-of");
  return [
    head,
    query.has("as-of") && el("p", { class: "muted" }, "What was set dynamically: the metadata log has neither defaults nor configs of files."),
    !name && el("p", {}, "Values that count for each broker without a value of its own."),
    el("p", { class: "tools" },
      el("label", {}, "Name contains ", el("input", { type: "search", name: "find", value: query.get("find") ?? "", autocomplete: "off" })),
      !query.has("as-of") && el("label", {}, el("input", { type: "checkbox", name: "all", checked: query.get("all") === "1" }), " also those with the default"),
      el("span", { class: "muted", role: "status" }, `${shown.length} of ${count(data.configs.length, "config")}`)),
    canChange && form(resource, name),
    table("Configs", canChange ? [...HEADS, "Change"] : HEADS, shown.map((one) => row(one, canChange))),
    commandLine(data.command),
  ];
}

const words = (source) => source.toLowerCase().replaceAll("_", " ");

const HEADS = ["Config", "Value", "Default", "Source", "About"];

const row = (one, canChange) =>
  el("tr", { "data-key": `config-${one.name}` },
    el("td", {}, el("code", {}, one.name)),
    el("td", { class: "value" }, one.isSensitive ? "(hidden)" : el("code", {}, one.value ?? "null")),
    el("td", { class: "value" }, one.hasDefault && !one.isSensitive ? el("code", {}, one.default ?? "null") : "—"),
    el("td", {}, words(one.source), one.isReadOnly && el("span", { class: "badge" }, "read-only")),
    el("td", { class: "wrap" }, one.documentation || "—", inherited(one)),
    canChange && el("td", {}, !one.isReadOnly && el("button", { type: "button", "data-edit": one.name, "aria-label": `Edit ${one.name}` }, "Edit")));

// Values that others set and this one hides.
const inherited = ({ synonyms, isSensitive }) =>
  synonyms.length > 1 && !isSensitive && el("details", {}, el("summary", {}, "All sources"),
    el("ul", { class: "lines" }, synonyms.map((one) => el("li", {}, `${words(one.source)}: ${one.name} = ${one.value ?? "null"}`))));

function form(resource, name) {
  const fields = [
    field("Config", "config", { size: 34, value: edited?.name ?? "", required: true }),
    field("Value", "value", { size: 34, value: edited?.value ?? "" }),
    el("label", {}, el("input", { type: "checkbox", name: "isRemoved" }), " remove it"),
  ];
  return changeForm(`config-${resource}-${name}`, "Set a config", fields, ({ config, value, isRemoved }) =>
    ({ kind: "alter-config", resource, name, config: config.trim(), value: isRemoved ? null : value }));
}

export function onClick(event, { data }) {
  const button = event.target.closest("[data-edit]");
  if (!button) return false;
  const one = data.configs.find(({ name }) => name === button.dataset.edit);
  edited = { name: one.name, value: one.value ?? "" };
  const form = document.querySelector('[data-form="change-plan"]');
  form.closest("details").open = true;
  form.elements.config.value = edited.name;
  form.elements.value.value = edited.value;
  form.elements.isRemoved.checked = false;
  form.elements.value.focus();
  return true;
}

export function onInput(event, context) {
  const { name, value, checked } = event.target;
  if (name !== "find" && name !== "all") return false;
  const text = name === "all" ? (checked ? "1" : "") : value;
  if (text) context.query.set(name, text);
  else context.query.delete(name);
  context.address = `/configs?${context.query}`;
  history.replaceState(null, "", context.address);
  return true;
}
