// All topics, filtered by name.

import { changeForm, field, numberField, outcome } from "./change.js";
import { commandLine, count, el } from "./dom.js";
import { topicLink } from "./links.js";
import { cell, Rows } from "./rows.js";

export const kinds = ["problem"];
export const hasPast = true;
export const source = (_, query) => `/api/topics${query.has("as-of") ? `?at=${query.get("as-of")}` : ""}`;

const rows = new Rows("Topics", "topics", ["Topic", "Partitions", "Replicas", "Under-replicated", "Without leader"]);

export function draw({ data, query }) {
  if (!data) return [el("h1", {}, "Topics"), el("p", { class: "muted" }, "Loading …")];
  const wanted = query.get("name") ?? "";
  const shown = data.topics.filter((one) => one.topic.toLowerCase().includes(wanted.toLowerCase()));
  return [
    el("h1", {}, "Topics"),
    el("p", { class: "tools" },
      el("label", {}, "Name contains ", el("input", { type: "search", name: "filter", value: wanted, autocomplete: "off" })),
      el("span", { class: "muted", role: "status" }, shown.length === data.topics.length ? count(shown.length, "topic") : `${shown.length} of ${count(data.topics.length, "topic")}`)),
    rows.draw(shown, keyOf, (one) => one, cells),
    !query.has("as-of") && [outcome("topics"), creation()],
    commandLine(data.command),
  ];
}

const creation = () => changeForm("create-topic", "Create a topic", [
  field("Name", "topic", { size: 30, required: true }),
  numberField("Partitions", "partitions", { placeholder: "default" }),
  numberField("Replicas of each", "replicationFactor", { placeholder: "default" }),
  el("label", { for: "new-configs" }, "Configs, a line each"),
  el("textarea", { id: "new-configs", name: "configs", rows: 3, spellcheck: "false", placeholder: "retention.ms=3600000" }),
], ({ topic, partitions, replicationFactor, configs }) =>
  ({ kind: "create-topic", topic: topic.trim(), partitions: partitions.trim(), replicationFactor: replicationFactor.trim(), configs: configsOf(configs) }));

function configsOf(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  const odd = lines.find((line) => line.indexOf("=") < 1);
  if (odd !== undefined) throw new Error(`Expected NAME=VALUE, and not “${odd}”.`);
  return Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()]));
}

const keyOf = (one) => `topic-${one.topic}`;

const cells = (one) => [
  cell({}, topicLink(one.topic), one.isInternal && el("span", { class: "badge" }, "internal")),
  cell({}, one.partitions),
  cell({}, one.replicas),
  cell({ class: one.underReplicated > 0 && "bad" }, one.underReplicated),
  cell({ class: one.offline > 0 && "bad" }, one.offline),
];

export function onInput(event, context) {
  if (event.target.name !== "filter") return false;
  const text = event.target.value;
  if (text) context.query.set("name", text);
  else context.query.delete("name");
  const query = context.query.toString();
  const address = query ? `/topics?${query}` : "/topics";
  history.replaceState(null, "", address);
  context.address = address;
  rows.top = 0;
  return true;
}

export const onDrawn = (root, context) => rows.onDrawn(root, context);
