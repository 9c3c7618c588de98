// What is being reassigned, how much of it has arrived, and the throttles that are set; as of an earlier
// moment without how much had arrived, which is not in the metadata log.

import { changeForm } from "./change.js";
import { bytes, commandLine, count, el, table } from "./dom.js";
import { atOf, brokerLinks, partitionLink } from "./links.js";

export const kinds = ["problem"];
export const title = () => "Reassignments";
export const hasPast = true;
export const source = (_, query) => `/api/reassignments${atOf(query).replace("&", "?")}`;

export function draw({ data, query, problem }) {
  const head = el("h1", {}, "Reassignments");
  if (!data) return [head, !problem && el("p", { class: "muted" }, "Loading …")];
  const canChange = !query.has("as-of");
  const topics = [...new Set(data.moves.map((one) => one.topic))];
  const hasProgress = data.moves.every((one) => one.progress);
  return [
    head,
    el("p", { class: "lead" }, data.moves.length ? `${count(data.moves.length + data.moreMoves, "partition")} being reassigned.` : "Nothing is being reassigned."),
    data.moves.length > 0 && table("Reassignments", ["Partition", "Replicas", "Added", "Removed", ...(hasProgress ? ["Arrived"] : [])], data.moves.map(row)),
    data.moreMoves > 0 && el("p", { class: "muted" }, `and ${data.moreMoves} more`),
    canChange && topics.slice(0, 20).map((topic) => changeForm(`cancel-${topic}`, `Cancel the reassignment of ${topic}`, [], () => ({ kind: "cancel-reassignment", topic }))),
    el("section", {}, el("h2", {}, "Throttles"), data.throttles.length
      ? table("Throttles", ["Resource", "Config", "Value"], data.throttles.map((one) =>
        el("tr", { "data-key": `throttle-${one.resource}-${one.name}-${one.config}` }, el("td", {}, `${one.resource} ${one.name}`), el("td", {}, el("code", {}, one.config)),
          el("td", { class: "wrap" }, one.value))))
      : el("p", { class: "muted" }, "None.")),
    canChange && changeForm("remove-throttles", "Remove all throttles", [], () => ({ kind: "remove-throttles" })),
    commandLine(data.command),
  ];
}

const row = (one) =>
  el("tr", { "data-key": `move-${one.topic}-${one.partition}` }, el("td", {}, partitionLink(one.topic, one.partition)),
    el("td", {}, brokerLinks(one.replicas)), el("td", {}, brokerLinks(one.adding)), el("td", {}, brokerLinks(one.removing)),
    one.progress && el("td", {}, one.progress.length ? one.progress.map((each) => el("div", {}, `broker ${each.broker}: ${arrived(each)}`)) : "—"));

function arrived({ bytes: some, ofBytes: all }) {
  const share = Number(all) > 0 ? `${Math.min(100, Math.floor((100 * Number(some)) / Number(all)))} %, ` : "";
  return `${share}${bytes(some)} of ${bytes(all)}`;
}
