// One partition: leader, epoch, ISR and ELR over time, and the cause of each change.

import { changesOf, drawBands, legend, sentenceOf } from "./bands.js";
import { brokersOf, changeForm, field, numberField } from "./change.js";
import { commandLine, el } from "./dom.js";
import { atOf, brokerLinks, brokerLink, printed, topicLink } from "./links.js";
import { Selection } from "./selection.js";

export const hasPast = true;
export const kinds = ["problem"];
export const title = ({ topic, partition }) => `${topic}-${partition}`;

export const source = ({ topic, partition }, query) => `/api/partition?topic=${encodeURIComponent(topic)}&partition=${partition}${atOf(query)}`;

const selection = new Selection();

export function draw({ data, params, query, problem }) {
  const head = el("h1", {}, topicLink(params.topic), ` / ${params.partition}`);
  if (!data) return [head, !problem && el("p", { class: "muted" }, "Loading …")];
  const changes = changesOf(data);
  selection.keys = changes.map((one) => one.key);
  const chosen = changes.find((one) => one.key === selection.key) ?? changes.at(-1);
  return [
    head,
    el("p", { class: "lead" }, state(data)),
    query.get("as-of") && el("p", { class: "note" }, `As of offset ${query.get("as-of")} of the metadata log. `,
      el("a", { href: location.pathname, "data-link": true, "data-now": true }, "Show the present")),
    data.historyProblem
      ? el("p", { class: "note" }, `The history is not available: ${data.historyProblem}`)
      : [drawBands(data, changes, selection.key), legend()],
    chosen && drawer(chosen, query.get("as-of") === null),
    data.exists && !query.has("as-of") && forms(params.topic, Number(params.partition), data),
    data.lines.length > 0 && el("details", { open: true, "data-key": "text" }, el("summary", {}, "As text, newest first"), printed(data.lines)),
    commandLine(data.command),
  ];
}

const forms = (topic, partition, { leader, replicas }) => [
  leader !== null && leader !== replicas[0] && changeForm(`elect-${topic}-${partition}`, "Elect the preferred leader", [], () => ({ kind: "elect", election: "preferred", topic, partition })),
  leader === null && changeForm(`unclean-${topic}-${partition}`, "Elect a leader that may lack records (unclean)", [], () => ({ kind: "elect", election: "unclean", topic, partition })),
  changeForm(`move-${topic}-${partition}`, "Move to other brokers", [
    field("Replicas, the preferred leader first", "brokers", { value: replicas.join(", "), required: true }),
    numberField("Bytes per second at most", "throttle", { placeholder: "no limit", size: 12 }),
  ], ({ brokers, throttle }) => ({ kind: "reassign", topic, partition, replicas: brokersOf(brokers), throttle: throttle.trim() })),
  changeForm(`records-${topic}-${partition}`, "Delete records", numberField("Below offset", "offset", { size: 20, required: true }),
    ({ offset }) => ({ kind: "delete-records", topic, partition, offset: offset.trim() })),
];

function state(data) {
  if (!data.exists) return "It does not exist.";
  const leader = data.leader === null ? ["No replica leads"] : ["Broker ", brokerLink(data.leader), " leads"];
  const out = data.replicas.filter((id) => !data.isr.includes(id));
  return [...leader, ` in epoch ${data.leaderEpoch}. In sync: `, ...[brokerLinks(data.isr)].flat(),
    out.length ? [". Out of sync: ", brokerLinks(out)] : "",
    data.elr.length ? [". Eligible besides: ", brokerLinks(data.elr)] : "", "."].flat();
}

function drawer(change, isNow) {
  const { election, isr } = change;
  return el("section", { class: "chosen", id: "chosen", "aria-live": "polite" },
    el("p", { class: "what" }, sentenceOf(change)),
    el("p", {}, election?.cause ?? isr.cause),
    election?.candidates && el("ul", { class: "candidates" }, election.candidates.map((id) => candidate(id, election))),
    election?.agrees === false && el("p", { class: "bad" }, "CONTRADICTION: these facts lead to another leader."),
    isr && isr.lags.map((lag) => el("p", {}, `${lag.replica} left: ${lag.recordsBehind ?? "an unknown number of"} records behind${lag.behindMs === null ? "" : `, for ${lag.behindMs} ms`}.`)),
    isr && !isr.recorded && el("p", { class: "muted" }, "The cause is not recorded: the leader that knew it has restarted."),
    isNow && el("p", {}, el("a", { href: `?as-of=${change.offset}`, "data-link": true }, `Show the partition as of offset ${change.offset}`)));
}

function candidate(id, election) {
  const out = election.ruledOut.find((one) => one.replica === id);
  const isChosen = id === election.leader;
  const why = isChosen ? `chosen as ${election.chosenBy}` : out ? out.why : "not needed";
  return el("li", { class: isChosen ? "won" : "" }, isChosen ? "✓ " : out ? "✕ " : "– ", el("b", {}, `broker ${id}`), `: ${why}`);
}

export const onClick = (event) => selection.onClick(event);
export const onFocus = (event) => selection.onFocus(event);
export const onKey = (event) => selection.onKey(event);

export const onDrawn = (root) => selection.followNewest(root);
