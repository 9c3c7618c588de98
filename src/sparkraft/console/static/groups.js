// All groups with their states; those in view also with their lag, if they are not too many.

import { commandLine, count, el, table } from "./dom.js";
import { lagText } from "./group.js";
import { groupLink } from "./links.js";

export const kinds = ["problem"];
export const source = (_, query) => `/api/groups?${new URLSearchParams({ name: query.get("name") ?? "" })}`;

const SHOWN = 500;

export function draw({ data, query }) {
  if (!data) return [el("h1", {}, "Groups"), el("p", { class: "muted" }, "Loading …")];
  const wanted = query.get("name") ?? "";
  const shown = data.groups.filter((one) => one.group.toLowerCase().includes(wanted.toLowerCase()));
  return [
    el("h1", {}, "Groups"),
    el("p", { class: "tools" },
      el("label", {}, "Name contains ", el("input", { type: "search", name: "filter", value: wanted, autocomplete: "off" })),
      el("span", { class: "muted", role: "status" }, shown.length === data.groups.length ? count(shown.length, "group") : `${shown.length} of ${count(data.groups.length, "group")}`)),
    table("Groups", ["Group", "State", "Type", "Protocol", "Lag"], shown.slice(0, SHOWN).map((one) =>
      el("tr", { "data-key": `group-${one.group}` }, el("td", {}, groupLink(one.group)), el("td", {}, one.state || "—"),
        el("td", {}, one.type || "—"), el("td", {}, one.protocol || "—"), el("td", { class: one.lag?.records ? "wrap" : "" }, one.lag ? lagText(one.lag) : "—")))),
    shown.length > data.withLagMax && el("p", { class: "muted" }, `The lag of the first ${count(data.withLagMax, "group")} is shown: type a part of the name for that of others.`),
    shown.length > SHOWN && el("p", { class: "muted" }, `and ${shown.length - SHOWN} more: type a part of the name`),
    commandLine(data.command),
    commandLine(data.lagCommand, "The lag in a terminal: "),
  ];
}

export function onInput(event, context) {
  if (event.target.name !== "filter") return false;
  const text = event.target.value;
  context.query = new URLSearchParams(text ? { name: text } : {});
  context.address = text ? `/groups?${context.query}` : "/groups";
  history.replaceState(null, "", context.address);
  return true;
}
