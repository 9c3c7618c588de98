// One broker: its state, what it leads and where it lags, its changes and elections.

import { commandLine, el, table } from "./dom.js";
import { atOf, configsLink, partitionLink, printed } from "./links.js";

export const kinds = ["problem"];
export const title = ({ broker }) => `Broker ${broker}`;
export const hasPast = true;
export const source = ({ broker }, query) => `/api/broker?broker=${encodeURIComponent(broker)}${atOf(query)}`;

const OUT_SHOWN = 50;

export function draw({ data, params, problem }) {
  const head = el("h1", {}, `Broker ${params.broker}`);
  if (!data) return [head, !problem && el("p", { class: "muted" }, "Loading …")];
  return [
    head,
    el("p", { class: "lead" }, `It is ${data.state}${data.rack ? `, in rack ${data.rack}` : ""}. It leads ${data.leads} of ${data.replicas} partitions, is the preferred leader of ${data.preferredLeaderOf}, and is in sync with ${data.inSync}.`),
    el("p", { class: "tools" }, configsLink("broker", params.broker), configsLink("broker", "", "Configs of all brokers")),
    data.outOfSync.length > 0 && el("section", {}, el("h2", {}, "Out of sync"),
      el("p", {}, data.outOfSync.slice(0, OUT_SHOWN).flatMap((name, at) => [at ? ", " : "", byName(name)])),
      data.outOfSync.length > OUT_SHOWN && el("p", { class: "muted" }, `and ${data.outOfSync.length - OUT_SHOWN} more`)),
    data.historyProblem ? el("p", { class: "note" }, `The history is not available: ${data.historyProblem}`) : history(data),
    commandLine(data.command),
  ];
}

function history(data) {
  return [
    el("section", {}, el("h2", {}, "Changes of its state, newest first"),
      table("Changes of its state", ["Time (UTC)", "Offset", "Broker epoch", "Change"], data.changes.map((one) =>
        el("tr", { "data-key": `change-${one.offset}` }, el("td", {}, one.time?.slice(0, 23).replace("T", " ") ?? "—"), el("td", { class: "number" }, one.offset),
          el("td", { class: "number" }, one.brokerEpoch), el("td", {}, one.what))))),
    el("section", {}, el("h2", {}, "Leaderships won and lost, newest first"),
      data.elections.length
        ? table("Leaderships won and lost", ["Time (UTC)", "Partition", "Leader", "Kind", "Cause"], data.elections.map((one) =>
          el("tr", { "data-key": `election-${one.topic}-${one.partition}-${one.offset}` }, el("td", {}, one.time?.slice(0, 23).replace("T", " ") ?? "—"),
            el("td", {}, partitionLink(one.topic, one.partition)), el("td", {}, `${one.previous ?? "none"} → ${one.leader ?? "none"}`),
            el("td", {}, one.kind), el("td", { class: "wrap" }, one.cause))))
        : el("p", { class: "muted" }, "None.")),
    el("details", {}, el("summary", {}, "As text"), printed(data.lines)),
  ];
}

function byName(name) {
  const at = name.lastIndexOf("-");
  return partitionLink(name.slice(0, at), name.slice(at + 1));
}
