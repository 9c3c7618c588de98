// One topic: its partitions with leaders, replicas in sync and offsets, and its configs.

import { commandLine, count, el, table } from "./dom.js";
import { brokerLink, brokerLinks, partitionLink, printed } from "./links.js";

export const kinds = ["problem"];
export const title = ({ topic }) => topic;
export const source = ({ topic }) => `/api/topic?topic=${encodeURIComponent(topic)}`;

export function draw({ data, params, problem }) {
  const head = el("h1", {}, params.topic);
  if (!data) return [head, !problem && el("p", { class: "muted" }, "Loading …")];
  const partitions = data.partitions.filter((one) => one.exists);
  const short = partitions.filter((one) => one.isr.length < one.replicas.length).length;
  const offline = partitions.filter((one) => one.leader === null).length;
  return [
    head,
    el("p", {}, el("a", { href: `/topics/${encodeURIComponent(params.topic)}/messages`, "data-link": true }, "Messages")),
    el("p", { class: "lead" }, `${count(partitions.length, "partition")}: ${offline ? `${offline} without a leader, ` : ""}${short ? `${short} under-replicated.` : "all replicas are in sync."}`),
    data.historyProblem && el("p", { class: "note" }, `The history is not available: ${data.historyProblem}`),
    table("Partitions", ["Partition", "Leader", "Epoch", "Leads since", "In sync", "Replicas", "ELR", "First offset", "Records", "Changes"],
      partitions.map((one) => row(params.topic, one, data.offsets))),
    configs(data.configs),
    data.lines.length > 0 && el("details", {}, el("summary", {}, "As text"), printed(data.lines)),
    commandLine(data.command),
  ];
}

function row(topic, one, offsets) {
  const found = offsets.find((each) => each.partition === one.partition);
  const isShort = one.isr.length < one.replicas.length;
  return el("tr", { "data-key": `partition-${one.partition}` },
    el("td", {}, partitionLink(topic, one.partition, one.partition)),
    el("td", { class: one.leader === null ? "bad" : "" }, one.leader === null ? "none" : brokerLink(one.leader)),
    el("td", { class: "number" }, one.leaderEpoch),
    el("td", {}, one.since ? `${(one.since.time ?? `offset ${one.since.offset}`).slice(0, 19).replace("T", " ")} (${one.since.kind})` : "—"),
    el("td", { class: isShort ? "bad" : "" }, brokerLinks(one.isr)),
    el("td", {}, brokerLinks(one.replicas)),
    el("td", {}, one.elr.length ? brokerLinks(one.elr) : "—"),
    el("td", { class: "number" }, found ? found.first : "—"),
    el("td", { class: "number" }, found ? Number(found.end - found.first).toLocaleString("en-US") : "—"),
    el("td", {}, partitionLink(topic, one.partition, "history")));
}

const configs = (entries) =>
  el("section", {}, el("h2", {}, "Configs that differ from the default"),
    entries.length
      ? table("Configs that differ from the default", ["Config", "Value", "Source"], entries.map((one) =>
        el("tr", { "data-key": `config-${one.name}` }, el("td", {}, el("code", {}, one.name)), el("td", {}, el("code", {}, one.value ?? "null")),
          el("td", {}, one.source.toLowerCase().replaceAll("_", " ")))))
      : el("p", { class: "muted" }, "None."));
