// The whole cluster: the sentence on its health, its nodes, partitions with a problem, and the last
// elections of the quorum.

import { commandLine, count, el, table } from "./dom.js";
import * as lanes from "./lanes.js";
import * as race from "./race.js";
import { brokerLink, brokerLinks, partitionLink, printed } from "./links.js";
import { Selection } from "./selection.js";

export const kinds = ["cluster", "quorum", "controller", "problem"];
export const hasPast = true;
export const source = (_, query) => (query.has("as-of") ? `/api/past?at=${query.get("as-of")}` : null);

const EPOCHS_SHOWN = 4;

const selection = new Selection();

export function draw({ documents, data, query }) {
  const cluster = query.has("as-of") ? data : documents.get("cluster");
  const quorum = query.has("as-of") ? null : documents.get("quorum");
  const controllers = query.has("as-of") ? null : documents.get("controller");
  if (!cluster) return [el("h1", {}, "Overview"), waiting(documents.get("problem"))];
  return [
    el("h1", { class: "sr" }, "Overview"),
    sentence(cluster.health),
    tiles(cluster),
    problems(cluster),
    brokers(cluster),
    cluster.mode === "zookeeper" ? controllers && lastControllers(controllers) : quorum && lastElections(quorum),
    commandLine(cluster.command),
  ];
}

export const waiting = (problem) =>
  el("p", { class: "muted" }, problem ? `Waiting for the cluster: ${problem.reason}` : "Waiting for the cluster …");

const SIGNS = { ok: "✓", warning: "!", critical: "✕" };
const LEVELS = { ok: "Healthy", warning: "Degraded", critical: "Critical" };

const sentence = ({ level, sentence: text }) =>
  el("p", { class: `health ${level}`, id: "health", role: "status" },
    el("span", { class: "sign", "aria-hidden": "true" }, SIGNS[level]),
    el("span", {}, el("strong", {}, LEVELS[level]), " ", text));

function tiles(cluster) {
  const fenced = cluster.brokers.filter((broker) => broker.isFenced).length;
  const then = cluster.asOf;
  const controller = then ? then.controller !== null && { id: then.controller, epoch: then.epoch } : cluster.controller;
  return el("dl", { class: "tiles" },
    tile("Controller", controller ? controller.id : "none", !controller ? "no leader" : controller.epoch === null ? "in ZooKeeper" : `epoch ${controller.epoch}`, !controller),
    tile("Brokers", cluster.brokers.length - fenced, fenced ? `${fenced} fenced` : "none fenced", fenced > 0),
    tile("Topics", cluster.topicCount.toLocaleString("en-US"), count(cluster.partitionCount, "partition")),
    tile("Without leader", cluster.offlineCount, "partitions", cluster.offlineCount > 0),
    tile("Under-replicated", cluster.underReplicatedCount, `${cluster.belowMinIsrCount} below min.insync.replicas`, cluster.underReplicatedCount > 0),
    tile("Not preferred", cluster.notPreferredCount, "led by another replica"));
}

const tile = (name, value, note, isBad = false) =>
  el("div", { class: isBad ? "tile bad" : "tile" },
    el("dt", {}, name), el("dd", {}, el("b", {}, value), " ", el("small", {}, note)));

function problems(cluster) {
  const worst = cluster.offline.length ? cluster.offline : cluster.underReplicated;
  if (!worst.length) return null;
  const total = cluster.offline.length ? cluster.offlineCount : cluster.underReplicatedCount;
  const what = cluster.offline.length ? "Partitions without a leader" : "Under-replicated partitions";
  return el("section", {}, el("h2", {}, what),
    table(what, ["Partition", "Leader", "In sync", "Replicas", "Down"],
      worst.slice(0, 20).map((one) => el("tr", { "data-key": `${one.topic}-${one.partition}` },
        el("td", {}, partitionLink(one.topic, one.partition)),
        el("td", {}, one.leader === null ? "none" : brokerLink(one.leader)),
        el("td", {}, brokerLinks(one.isr)),
        el("td", {}, brokerLinks(one.replicas)),
        el("td", {}, brokerLinks(one.down))))),
    total > 20 && el("p", { class: "muted" }, `and ${total - 20} more`));
}

function brokers(cluster) {
  return el("section", {}, el("h2", {}, "Brokers"),
    table("Brokers", ["Broker", "Address", "State", "Leads", "Replicas", "Out of sync", "Rack"],
      cluster.brokers.map((one) => el("tr", { "data-key": `broker-${one.id}` },
        el("td", {}, el("b", {}, brokerLink(one.id)), one.isController && el("span", { class: "badge" }, "controller")),
        el("td", {}, el("code", {}, one.address)),
        el("td", { class: one.isFenced ? "bad" : "" }, one.isFenced ? "✕ fenced" : "✓ serving"),
        el("td", { class: "number" }, one.leads),
        el("td", { class: "number" }, one.replicas),
        el("td", { class: one.outOfSync ? "number bad" : "number" }, one.outOfSync),
        el("td", {}, one.rack ?? "—")))));
}

function lastElections(quorum) {
  const epochs = quorum.epochs.slice(-EPOCHS_SHOWN);
  const events = lanes.eventsOf(epochs);
  return history("Last elections of the controller", events, {
    picture: lanes.drawLanes({ ...quorum, epochs }, selection.key),
    sentenceOf: (event) => `Epoch ${event.epoch}: ${lanes.sentenceOf(event)}`,
    lines: [...epochs].reverse().flatMap(({ epoch }) => quorum.lines[epoch] ?? []),
    more: el("a", { href: "/quorum", "data-link": true }, "All elections, votes and reasons"),
    command: quorum.command,
  });
}

function lastControllers(found) {
  const epochs = found.epochs.slice(-EPOCHS_SHOWN);
  return history("Last controllers", race.eventsOf(epochs), {
    picture: race.drawRace({ ...found, epochs }, selection.key),
    sentenceOf: race.sentenceOf,
    lines: found.lines.slice(-EPOCHS_SHOWN).reverse().flat(),
    more: el("a", { href: "/controller", "data-link": true }, "All epochs, attempts and failovers"),
    command: found.command,
  });
}

// A drawing, its selected event as a sentence, the same as text, and the command that prints it.
function history(heading, events, { picture, sentenceOf, lines, more, command }) {
  selection.keys = events.map((one) => one.key);
  const chosen = events.find((one) => one.key === selection.key) ?? events.at(-1);
  return el("section", {}, el("h2", {}, heading),
    picture,
    chosen && [
      el("p", { id: "chosen", class: "chosen", "aria-live": "polite" }, sentenceOf(chosen)),
      el("details", { "data-key": "text" }, el("summary", {}, "As text, newest first"), printed(lines)),
      commandLine(command),
    ],
    el("p", {}, more));
}

export const onClick = (event) => selection.onClick(event);
export const onFocus = (event) => selection.onFocus(event);
export const onKey = (event) => selection.onKey(event);
export const onDrawn = (root) => selection.followNewest(root);
