// The log directories of all brokers: their space, their replicas, and replicas that move to another one.

import { bytes, commandLine, count, el, table } from "./dom.js";
import { brokerLink, partitionLink } from "./links.js";

export const kinds = ["problem"];
export const title = () => "Log directories";
export const source = () => "/api/log-dirs";

export function draw({ data, problem }) {
  const head = el("h1", {}, "Log directories");
  if (!data) return [head, !problem && el("p", { class: "muted" }, "Loading …")];
  const rows = data.brokers.flatMap((one) => (one.problem ? [silent(one)] : one.dirs.map((dir) => row(one.broker, dir))));
  const largest = data.brokers.flatMap(({ broker, dirs }) => dirs.flatMap((dir) => dir.largest.map((each) => ({ broker, path: dir.path, ...each }))));
  const arriving = data.brokers.flatMap(({ broker, dirs }) => dirs.flatMap((dir) => dir.arriving.map((each) => ({ broker, path: dir.path, ...each }))));
  return [
    head,
    table("Log directories", ["Broker", "Directory", "State", "Replicas", "Their size", "Free", "Of"], rows),
    arriving.length > 0 && el("section", {}, el("h2", {}, "Moving to another directory"), replicas("Moving to another directory", arriving)),
    el("section", {}, el("h2", {}, "Largest replicas"), replicas("Largest replicas", largest.sort((a, b) => b.bytes - a.bytes).slice(0, 20))),
    commandLine(data.command),
  ];
}

const row = (broker, dir) =>
  el("tr", { "data-key": `dir-${broker}-${dir.path}` },
    el("td", {}, brokerLink(broker)), el("td", {}, el("code", {}, dir.path)),
    el("td", { class: dir.error ? "bad" : "" }, dir.error ? `✕ ${dir.error.toLowerCase().replaceAll("_", " ")}` : "✓ online"),
    el("td", { class: "number" }, dir.replicas), el("td", { class: "number" }, bytes(dir.bytes)),
    el("td", { class: dir.totalBytes > 0 && dir.usableBytes < 0.1 * dir.totalBytes ? "number bad" : "number" }, dir.totalBytes > 0 ? bytes(dir.usableBytes) : "—"),
    el("td", { class: "number" }, dir.totalBytes > 0 ? bytes(dir.totalBytes) : "—"));

const silent = ({ broker, problem }) =>
  el("tr", { class: "silent", "data-key": `dir-${broker}` }, el("td", {}, brokerLink(broker)), el("td", { colspan: 6 }, problem));

const replicas = (name, listed) => (listed.length
  ? table(name, ["Partition", "Broker", "Directory", "Size"], listed.map((one) =>
    el("tr", { "data-key": `replica-${one.topic}-${one.partition}-${one.broker}-${one.path}` }, el("td", {}, partitionLink(one.topic, one.partition)),
      el("td", {}, brokerLink(one.broker)), el("td", {}, el("code", {}, one.path)), el("td", { class: "number" }, bytes(one.bytes)))))
  : el("p", { class: "muted" }, count(0, "replica")));
