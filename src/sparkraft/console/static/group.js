// One group: members, lag, and every decision about it: who joined and left, leaders and assignors
// that were chosen, and partitions that moved, each with its reason.

import { clock, commandLine, count, duration, el, svg, table } from "./dom.js";
import { configsLink, partitionLink, printed } from "./links.js";
import { drawMembers, drawnOf, keyOf, legend } from "./members.js";
import * as reset from "./reset.js";
import { Selection } from "./selection.js";

export const kinds = ["problem"];
const idOf = (query) => query.get("id") ?? "";
export const title = (_, query) => idOf(query) || "Group without a name";
export const source = (_, query) => `/api/group?group=${encodeURIComponent(idOf(query))}`;

const selection = new Selection();

export function draw({ data, query, problem }) {
  const head = el("h1", {}, title(null, query));
  if (!data) return [head, !problem && el("p", { class: "muted" }, "Loading …")];
  const drawn = drawnOf(data.decisions);
  selection.keys = drawn.decisions.map(keyOf);
  return [
    head,
    el("p", { class: "lead" }, data.problem ? `The group cannot be described: ${data.problem}` : summary(data)),
    el("p", { class: "tools" }, configsLink("group", data.group)),
    data.lag && lagLine(data.lag),
    data.silent.map((one) => el("p", { class: "note" }, `Decisions of broker ${one.node} are not available: ${one.reason}`)),
    data.decisions.length > 0 && [drawMembers(drawn, selection.key), legend()],
    data.decisions.length > 0 && chosen(data.decisions),
    members(data),
    offsets(data),
    reset.draw(data),
    data.lines.length > 0 && el("details", { open: true, "data-key": "text" }, el("summary", {}, "Decisions as text, oldest first"), printed(data.lines)),
    commandLine(data.command),
  ];
}

function summary(data) {
  const epoch = data.groupEpoch === null ? "" : `, group epoch ${data.groupEpoch}`;
  return `${data.state} (${data.type}${epoch}${data.assignor ? `, assignor ${data.assignor}` : ""}): ${count(data.members.length, "member")}, ${data.lag.records === 0 ? "no lag" : `lag ${lagText(data.lag)}`}; coordinated by broker ${data.coordinator}.`;
}

// Lag in records and time, and whether it shrinks.
export function lagText(lag) {
  if (lag.records === 0) return "none";
  const behind = lag.behindMs === null ? "" : `, ${duration(lag.behindMs)} behind`;
  const until = lag.catchUpSeconds === null ? "" : `, caught up in ${duration(lag.catchUpSeconds * 1000)}`;
  return `${count(lag.records, "record")}${behind}${progressOf(lag)}${until}`;
}

function progressOf({ progress, perSecond }) {
  if (!progress) return "";
  const each = Math.round(Math.abs(perSecond ?? 0));
  const rate = perSecond ? ` by ${each ? count(each, "record") : "less than a record"} a second` : "";
  return `, ${progress}${progress === "catching up" || progress === "falling behind" ? rate : ""}`;
}

// The total lag over the time that the console has watched.
function lagLine({ points }) {
  if (points.length < 3) return null;
  const [from, to] = [points[0][0], points.at(-1)[0]];
  const most = Math.max(1, ...points.map(([, lag]) => Number(lag)));
  const at = ([ms, lag]) => `${(240 * (ms - from)) / Math.max(1, to - from)} ${38 - (34 * Number(lag)) / most}`;
  return el("figure", { class: "trend", "data-key": "trend" },
    svg("svg", { width: 244, height: 42, role: "img", "aria-label": `Lag over ${duration(to - from)}: at most ${count(most, "record")}, now ${count(points.at(-1)[1], "record")}` },
      svg("path", { d: `M${points.map(at).join("L")}` })),
    el("figcaption", { class: "muted" }, `Lag over ${duration(to - from)}, at most ${count(most, "record")}`));
}

function chosen(decisions) {
  const one = decisions.find((each) => keyOf(each) === selection.key) ?? decisions.at(-1);
  const votes = Object.entries(one.votes);
  return el("section", { class: "chosen", id: "chosen", "aria-live": "polite" },
    el("p", { class: "what" }, `${clock(one.atMs)}  epoch ${one.epoch}: ${one.kind}${one.member ? ` ${one.member}` : ""}${one.chosen ? ` → ${one.chosen}` : ""}`),
    el("p", {}, one.reason, one.tookMs >= 0 && ` (${duration(one.tookMs)})`),
    votes.length > 0 && el("p", {}, `Votes: ${votes.map(([member, protocol]) => `${member} for ${protocol}`).join("; ")}`),
    Object.entries(one.ruledOut).map(([candidate, reason]) => el("p", {}, `Not ${candidate}: ${reason}`)),
    ownedText(one) && el("p", {}, `Partitions owned now: ${ownedText(one)}`),
    one.moves.length > 0 && el("ul", {}, one.moves.slice(0, 20).map((move) =>
      el("li", {}, partitionLink(move.topic, move.partition), `: ${move.from ?? "no member"} → ${move.to ?? "no member"}${move.tookMs >= 0 ? ` in ${duration(move.tookMs)}` : ""}`))),
    one.moveCount > 20 && el("p", { class: "muted" }, `and ${one.moveCount - 20} more partitions`));
}

// The partitions that members own, of those whose number the decision changed.
const ownedText = ({ owned, ownedIsExact }) =>
  Object.entries(owned).slice(0, 10).map(([name, number]) => `${name} ${ownedIsExact ? "" : "about "}${number}`).join(", ");

const members = (data) =>
  data.members?.length > 0 && el("section", {}, el("h2", {}, "Members"),
    table("Members", ["Member", "Client", "Host", "Epoch", "Partitions"], data.members.map((one) =>
      el("tr", { "data-key": `member-${one.id}` }, el("td", {}, one.id, one.instanceId && el("span", { class: "badge" }, one.instanceId)), el("td", {}, one.clientId),
        el("td", {}, one.host), el("td", { class: "number" }, one.epoch ?? "—"), el("td", { class: "number" }, one.partitions)))));

const offsets = (data) =>
  data.offsets?.length > 0 && el("section", {}, el("h2", {}, "Offsets"),
    table("Offsets", ["Partition", "Committed", "Log end", "Lag", "Behind", "Progress", "Owner"], data.offsets.slice(0, 500).map((one) =>
      el("tr", { "data-key": `offset-${one.topic}-${one.partition}` }, el("td", {}, partitionLink(one.topic, one.partition)), el("td", { class: "number" }, one.currentOffset ?? "—"),
        el("td", { class: "number" }, one.logEndOffset ?? "—"), el("td", { class: "number" }, one.lag ?? "—"),
        el("td", { class: "number" }, one.behindMs === null ? "—" : one.lag === 0 ? "0 s" : duration(one.behindMs)), el("td", {}, one.progress ?? "—"), el("td", {}, one.consumerId ?? "none")))));

export const onSubmit = (event, context) => {
  reset.submit(event.target, context);
  return null;
};
export const onClick = (event) => selection.onClick(event);
export const onFocus = (event) => selection.onFocus(event);
export const onKey = (event) => selection.onKey(event);
export const onDrawn = (root) => selection.followNewest(root);
