// One topic: its partitions with leaders, replicas in sync and offsets, and its configs.

import { brokersOf, changeForm, field, numberField } from "./change.js";
import { commandLine, count, el, table } from "./dom.js";
import { atOf, brokerLink, brokerLinks, configsLink, partitionLink, printed } from "./links.js";
import { cell, Rows } from "./rows.js";
import { may } from "./visitor.js";

export const kinds = ["problem"];
export const title = ({ topic }) => topic;
export const hasPast = true;
export const source = ({ topic }, query) => `/api/topic?topic=${encodeURIComponent(topic)}${atOf(query)}`;

const rows = new Rows("Partitions", "partitions", ["Partition", "Leader", "Epoch", "Leads since", "In sync", "Replicas", "ELR", "First offset", "Records", "Changes"]);
const keyOf = (one) => `partition-${one.partition}`;

export const onDrawn = (root, context) => rows.onDrawn(root, context);

export function leave() {
  rows.top = 0;
}

export function draw({ data, params, query, problem }) {
  const head = el("h1", {}, params.topic);
  if (!data) return [head, !problem && el("p", { class: "muted" }, "Loading …")];
  const partitions = data.partitions.filter((one) => one.exists);
  const short = partitions.filter((one) => one.isr.length < one.replicas.length).length;
  const offline = partitions.filter((one) => one.leader === null).length;
  const offsets = new Map(data.offsets.map((one) => [one.partition, one]));
  return [
    head,
    el("p", { class: "tools" }, may("reader") && el("a", { href: `/topics/${encodeURIComponent(params.topic)}/messages`, "data-link": true }, "Messages"),
      configsLink("topic", params.topic)),
    el("p", { class: "lead" }, `${count(partitions.length, "partition")}: ${offline ? `${offline} without a leader, ` : ""}${short ? `${short} under-replicated.` : "all replicas are in sync."}`),
    data.historyProblem && el("p", { class: "note" }, `The history is not available: ${data.historyProblem}`),
    rows.draw(partitions, keyOf, (one) => [params.topic, one, offsets.get(one.partition)], cells),
    configs(data.configs),
    !query.has("as-of") && forms(params.topic, partitions.length, offline),
    data.lines.length > 0 && el("details", {}, el("summary", {}, "As text"), printed(data.lines)),
    commandLine(data.command),
  ];
}

const forms = (topic, count, offline) => [
  changeForm(`add-${topic}`, "Add partitions", numberField("Partitions then", "partitions", { value: count + 1, required: true }),
    ({ partitions }) => ({ kind: "add-partitions", topic, partitions: partitions.trim() })),
  changeForm(`elect-${topic}`, "Elect preferred leaders", [], () => ({ kind: "elect", election: "preferred", topic })),
  offline > 0 && changeForm(`unclean-${topic}`, "Elect leaders that may lack records (unclean)", [], () => ({ kind: "elect", election: "unclean", topic })),
  changeForm(`move-${topic}`, "Move to other brokers", [
    field("Brokers", "brokers", { placeholder: "1, 2, 3", required: true }),
    numberField("Bytes per second at most", "throttle", { placeholder: "no limit", size: 12 }),
  ], ({ brokers, throttle }) => ({ kind: "reassign", topic, replicas: brokersOf(brokers), throttle: throttle.trim() })),
  changeForm(`delete-${topic}`, "Delete the topic", [], () => ({ kind: "delete-topic", topic })),
];

function cells([topic, one, found]) {
  const isShort = one.isr.length < one.replicas.length;
  return [
    cell({}, partitionLink(topic, one.partition, one.partition)),
    cell({ class: one.leader === null && "bad" }, one.leader === null ? "none" : brokerLink(one.leader)),
    cell({}, one.leaderEpoch),
    cell({}, one.since ? `${(one.since.time ?? `offset ${one.since.offset}`).slice(0, 19).replace("T", " ")} (${one.since.kind})` : "—"),
    cell({ class: isShort && "bad" }, brokerLinks(one.isr)),
    cell({}, brokerLinks(one.replicas)),
    cell({}, one.elr.length ? brokerLinks(one.elr) : "—"),
    cell({}, found ? found.first : "—"),
    cell({}, found ? Number(found.end - found.first).toLocaleString("en-US") : "—"),
    cell({}, partitionLink(topic, one.partition, "history")),
  ];
}

const configs = (entries) =>
  el("section", {}, el("h2", {}, "Configs that differ from the default"),
    entries.length
      ? table("Configs that differ from the default", ["Config", "Value", "Source"], entries.map((one) =>
        el("tr", { "data-key": `config-${one.name}` }, el("td", {}, el("code", {}, one.name)), el("td", {}, el("code", {}, one.value ?? "null")),
          el("td", {}, one.source.toLowerCase().replaceAll("_", " ")))))
      : el("p", { class: "muted" }, "None."));
