// One group: members, lag, and every decision about it: who joined and left, leaders and assignors
// that were chosen, and partitions that moved, each with its reason.

import { clock, commandLine, count, duration, el, table } from "./dom.js";
import { partitionLink, printed } from "./links.js";
import { drawMembers, legend } from "./members.js";
import { Selection } from "./selection.js";

export const kinds = ["problem"];
const idOf = (query) => query.get("id") ?? "";
export const title = (_, query) => idOf(query) || "Group without a name";
export const source = (_, query) => `/api/group?group=${encodeURIComponent(idOf(query))}`;

const selection = new Selection();

export function draw({ data, query, problem }) {
  const head = el("h1", {}, title(null, query));
  if (!data) return [head, !problem && el("p", { class: "muted" }, "Loading …")];
  selection.keys = data.decisions.map((one) => `${one.coordinator}-${one.number}`);
  return [
    head,
    el("p", { class: "lead" }, data.problem ? `The group cannot be described: ${data.problem}` : summary(data)),
    data.silent.map((one) => el("p", { class: "note" }, `Decisions of broker ${one.node} are not available: ${one.reason}`)),
    data.decisions.length > 0 && [drawMembers(data.decisions, selection.key), legend()],
    data.decisions.length > 0 && chosen(data.decisions),
    members(data),
    offsets(data),
    data.lines.length > 0 && el("details", { open: true, "data-key": "text" }, el("summary", {}, "Decisions as text, oldest first"), printed(data.lines)),
    commandLine(data.command),
  ];
}

function summary(data) {
  const lag = data.offsets.reduce((sum, one) => sum + Number(one.lag ?? 0), 0);
  const epoch = data.groupEpoch === null ? "" : `, group epoch ${data.groupEpoch}`;
  return `${data.state} (${data.type}${epoch}${data.assignor ? `, assignor ${data.assignor}` : ""}): ${count(data.members.length, "member")}, lag ${lag.toLocaleString("en-US")} records; coordinated by broker ${data.coordinator}.`;
}

function chosen(decisions) {
  const one = decisions.find((each) => `${each.coordinator}-${each.number}` === selection.key) ?? decisions.at(-1);
  const votes = Object.entries(one.votes);
  return el("section", { class: "chosen", id: "chosen", "aria-live": "polite" },
    el("p", { class: "what" }, `${clock(one.atMs)}  epoch ${one.epoch}: ${one.kind}${one.member ? ` ${one.member}` : ""}${one.chosen ? ` → ${one.chosen}` : ""}`),
    el("p", {}, one.reason, one.tookMs >= 0 && ` (${duration(one.tookMs)})`),
    votes.length > 0 && el("p", {}, `Votes: ${votes.map(([member, protocol]) => `${member} for ${protocol}`).join("; ")}`),
    Object.entries(one.ruledOut).map(([candidate, reason]) => el("p", {}, `Not ${candidate}: ${reason}`)),
    one.moves.length > 0 && el("ul", {}, one.moves.slice(0, 20).map((move) =>
      el("li", {}, partitionLink(move.topic, move.partition), `: ${move.from ?? "no member"} → ${move.to ?? "no member"}${move.tookMs >= 0 ? ` in ${duration(move.tookMs)}` : ""}`))),
    one.moveCount > 20 && el("p", { class: "muted" }, `and ${one.moveCount - 20} more partitions`));
}

const members = (data) =>
  data.members?.length > 0 && el("section", {}, el("h2", {}, "Members"),
    table("Members", ["Member", "Client", "Host", "Epoch", "Partitions"], data.members.map((one) =>
      el("tr", { "data-key": `member-${one.id}` }, el("td", {}, one.id, one.instanceId && el("span", { class: "badge" }, one.instanceId)), el("td", {}, one.clientId),
        el("td", {}, one.host), el("td", { class: "number" }, one.epoch ?? "—"), el("td", { class: "number" }, one.partitions)))));

const offsets = (data) =>
  data.offsets?.length > 0 && el("section", {}, el("h2", {}, "Offsets"),
    table("Offsets", ["Partition", "Committed", "Log end", "Lag", "Owner"], data.offsets.slice(0, 500).map((one) =>
      el("tr", { "data-key": `offset-${one.topic}-${one.partition}` }, el("td", {}, partitionLink(one.topic, one.partition)), el("td", { class: "number" }, one.currentOffset ?? "—"),
        el("td", { class: "number" }, one.logEndOffset ?? "—"), el("td", { class: "number" }, one.lag ?? "—"), el("td", {}, one.consumerId ?? "none")))));

export const onClick = (event) => selection.onClick(event);
export const onFocus = (event) => selection.onFocus(event);
export const onKey = (event) => selection.onKey(event);
