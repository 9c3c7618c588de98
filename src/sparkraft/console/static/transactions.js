// Transactions of all coordinators, and the producers of a partition.

import { commandLine, count, duration, el, table } from "./dom.js";
import { brokerLink, partitionLink } from "./links.js";

export const kinds = ["problem"];
export const title = () => "Transactions";
export const source = () => "/api/transactions";
export const hasClock = true;

const empty = () => ({ topic: "", partition: "", found: null, problem: null });
let asked = empty();

export function draw({ data, problem }) {
  const head = el("h1", {}, "Transactions");
  if (!data) return [head, !problem && el("p", { class: "muted" }, "Loading …")];
  const open = data.transactions.filter((one) => one.isOpen).length;
  return [
    head,
    el("p", { class: "lead" }, `${count(data.transactions.length + data.more, "transactional id")}, ${open} with an open transaction.`),
    data.transactions.length > 0 && table("Transactions", ["Transactional id", "State", "Open for", "Timeout", "Partitions", "Producer id", "Coordinator"], data.transactions.map(row)),
    data.more > 0 && el("p", { class: "muted" }, `and ${data.more} more`),
    producers(),
    commandLine(data.command),
  ];
}

const row = (one) =>
  el("tr", { "data-key": `transaction-${one.transactionalId}` }, el("td", { class: "wrap" }, one.transactionalId), el("td", {}, one.state, one.problem && el("div", { class: "bad" }, one.problem)),
    el("td", { class: "number" }, one.startMs ? duration(Math.max(0, Date.now() - one.startMs)) : "—"), el("td", { class: "number" }, one.timeoutMs ? duration(one.timeoutMs) : "—"),
    el("td", { class: "wrap" }, one.partitions?.join(", ") || "—"), el("td", { class: "number" }, one.producerId), el("td", {}, brokerLink(one.coordinator)));

function producers() {
  const { found } = asked;
  return el("section", {}, el("h2", {}, "Producers of a partition"),
    el("form", { class: "tools", "data-form": "producers" },
      el("label", {}, "Topic ", el("input", { name: "topic", value: asked.topic, size: 24, autocomplete: "off", spellcheck: "false", required: true })),
      el("label", {}, "Partition ", el("input", { name: "partition", value: asked.partition, size: 6, inputmode: "numeric", autocomplete: "off", required: true })),
      el("button", { type: "submit" }, "Show")),
    asked.problem && el("p", { class: "problem", role: "alert" }, asked.problem),
    found && el("div", { id: "producers" },
      el("p", {}, partitionLink(found.topic, found.partition), ` remembers ${count(found.producers.length + found.more, "producer")}.`),
      found.producers.length > 0 && table("Producers", ["Producer id", "Epoch", "Last sequence", "Last record (UTC)", "Transaction open since offset"], found.producers.map((one) =>
        el("tr", { "data-key": `producer-${one.producerId}` }, el("td", { class: "number" }, one.producerId), el("td", { class: "number" }, one.epoch), el("td", { class: "number" }, one.lastSequence),
          el("td", {}, one.lastMs > 0 ? new Date(Number(one.lastMs)).toISOString().slice(0, 19).replace("T", " ") : "—"),
          el("td", { class: one.isHanging ? "bad" : "" }, one.openSince ?? "—", one.isHanging && " hanging: no coordinator will end it")))),
      commandLine(found.command)));
}

async function ask({ topic, partition }, context) {
  asked = { ...empty(), topic: topic.trim(), partition: partition.trim() };
  const response = await fetch(`/api/producers?${new URLSearchParams({ topic: asked.topic, partition: asked.partition })}`);
  if (response.ok) asked.found = await response.json();
  else asked.problem = (await response.text()).trim();
  context.redraw();
}

export function onSubmit(event, context) {
  if (event.target.dataset.form === "producers") ask(Object.fromEntries(new FormData(event.target)), context);
  return null;
}
