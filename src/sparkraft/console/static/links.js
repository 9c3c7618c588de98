// Links between screens. Names may contain any character.

import { el } from "./dom.js";

const link = (path, ...text) => el("a", { href: path, "data-link": true }, ...text);
const enc = encodeURIComponent;

export const topicLink = (topic) => link(`/topics/${enc(topic)}`, topic);
export const partitionLink = (topic, partition, text) => link(`/topics/${enc(topic)}/${partition}`, text ?? `${topic}-${partition}`);
export const brokerLink = (id) => link(`/brokers/${id}`, id);
export const configsLink = (resource, name, text = "Configs") => link(`/configs?${new URLSearchParams({ resource, name })}`, text);
export const groupLink = (id) => link(`/group?id=${enc(id)}`, id || "(no name)");

// The moment of the address as a parameter of a request.
export const atOf = (query) => (query.has("as-of") ? `&at=${query.get("as-of")}` : "");

// Broker ids with commas, each a link.
export const brokerLinks = (ids) =>
  ids.length ? ids.flatMap((id, at) => (at ? [", ", brokerLink(id)] : [brokerLink(id)])) : "none";

// Lines that a command prints.
export const printed = (lines) =>
  el("div", { class: "printed", role: "region", "aria-label": "As the command prints it", tabindex: "0" },
    lines.map((line) => el("div", { class: line.startsWith("  ") ? "inner" : "" }, line || "\u00a0")));
