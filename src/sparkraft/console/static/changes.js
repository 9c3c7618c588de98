// The last changes up to the moment of the bar, what differs from now, and what was set then.

import { commandLine, el, table } from "./dom.js";

export const kinds = [];
export const hasPast = true;
export const source = (_, query) => `/api/changes?at=${query.get("as-of") ?? -1}`;

export function draw({ data, query }) {
  if (!data) return [el("h1", {}, "Changes"), el("p", { class: "muted" }, "Loading …")];
  return [
    el("h1", {}, "Changes"),
    el("p", { class: "lead" }, `Up to offset ${data.offset}${data.time ? `, ${data.time.slice(0, 23).replace("T", " ")} UTC` : ""}, epoch ${data.epoch}`),
    table("Changes, newest first", ["Offset", "Time (UTC)", "Kind", "Change"], data.changes.map((one) =>
      el("tr", { "data-key": `change-${one.offset}` },
        el("td", { class: "number" }, el("a", { href: `/changes?as-of=${one.offset}`, "data-link": true }, one.offset)),
        el("td", {}, one.time?.slice(0, 23).replace("T", " ") ?? "—"), el("td", {}, one.kind), el("td", { class: "wrap" }, one.text)))),
    query.has("as-of") && el("section", {}, el("h2", {}, "From then to now"), list(data.differences.map((one) => one.text)),
      data.moreDifferences && el("p", { class: "muted" }, "and more")),
    el("section", {}, el("h2", {}, "Features"), list(Object.entries(data.features).map(([name, level]) => `${name} ${level}`))),
    el("section", {}, el("h2", {}, "Configs"), data.configs.length
      ? table("Configs", ["Resource", "Config", "Value"], data.configs.map((one) =>
        el("tr", {}, el("td", {}, one.resource), el("td", {}, el("code", {}, one.name)), el("td", { class: "wrap" }, el("code", {}, one.value)))))
      : el("p", { class: "muted" }, "None.")),
    el("section", {}, el("h2", {}, "Access control entries"), list(data.acls)),
    commandLine(data.command),
  ];
}

const list = (texts) =>
  texts.length ? el("ul", { class: "lines" }, texts.map((text) => el("li", {}, text))) : el("p", { class: "muted" }, "None.");
