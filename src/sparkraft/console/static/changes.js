// The last changes up to the moment of the bar, what differs from now, and what was set then; and the
// differences of two other moments, which the address names as `from` and `to`.

import { commandLine, count, el, table } from "./dom.js";

export const kinds = [];
export const hasPast = true;

export function source(_, query) {
  const values = new URLSearchParams({ at: query.get("as-of") ?? "-1" });
  for (const name of ["from", "to"]) if (query.get(name)) values.set(name, query.get(name));
  return `/api/changes?${values}`;
}

export function draw({ data, query }) {
  if (!data) return [el("h1", {}, "Changes"), el("p", { class: "muted" }, "Loading …")];
  if (data.problem) return [el("h1", {}, "Changes"), el("p", { class: "note" }, `The changes are not available: ${data.problem}`)];
  return [
    el("h1", {}, "Changes"),
    el("p", { class: "lead" }, `Up to ${place(data)}`),
    table("Changes, newest first", ["Offset", "Time (UTC)", "Kind", "Change"], data.changes.map((one) =>
      el("tr", { "data-key": `change-${one.offset}` },
        el("td", { class: "number" }, el("a", { href: `/changes?as-of=${one.offset}`, "data-link": true }, one.offset)),
        el("td", {}, one.time?.slice(0, 23).replace("T", " ") ?? "—"), el("td", {}, one.kind), el("td", { class: "wrap" }, one.text)))),
    query.has("as-of") && el("section", {}, el("h2", {}, "From then to now"), list(data.differences.map((one) => one.text)),
      data.moreDifferences && el("p", { class: "muted" }, "and more")),
    compare(query, data.comparison),
    el("section", {}, el("h2", {}, "Features"), list(Object.entries(data.features).map(([name, level]) => `${name} ${level}`))),
    el("section", {}, el("h2", {}, "Configs"), data.configs.length
      ? table("Configs", ["Resource", "Config", "Value"], data.configs.map((one) =>
        el("tr", {}, el("td", {}, one.resource), el("td", {}, el("code", {}, one.name)), el("td", { class: "wrap" }, el("code", {}, one.value)))))
      : el("p", { class: "muted" }, "None.")),
    el("section", {}, el("h2", {}, "Access control entries"), list(data.acls)),
    commandLine(data.command),
  ];
}

const place = ({ offset, time, epoch }) =>
  `offset ${offset}${time ? `, ${time.slice(0, 23).replace("T", " ")} UTC` : ""}, epoch ${epoch}`;

function compare(query, found) {
  const field = (label, name, value, placeholder) =>
    el("label", {}, `${label} `, el("input", { name, value, size: 22, placeholder, autocomplete: "off", spellcheck: "false" }));
  return el("section", { id: "compare" }, el("h2", {}, "Compare two moments"),
    el("form", { class: "tools", "data-form": "compare" },
      field("From", "from", query.get("from") ?? query.get("as-of") ?? "", "offset or time (UTC)"),
      field("To", "to", query.get("to") ?? "", "now"),
      el("button", { type: "submit" }, "Compare")),
    found?.problem ? el("p", { class: "problem", role: "alert" }, found.problem) : null,
    found && !found.problem && comparison(found));
}

function comparison({ from, to, differences, others, isCut, changeCount, command }) {
  const more = others ? `and ${isCut ? "more than " : ""}${count(others, "other difference")}` : null;
  return el("div", { id: "comparison" },
    el("p", {}, `From ${place(from)}, to ${place(to)}: ${count(changeCount, "change")} of the metadata log.`),
    differences.length ? list(differences.map((one) => one.text)) : el("p", { class: "muted" }, "Nothing differs."),
    more && el("p", { class: "muted" }, more),
    command && commandLine(command, "Each of these changes in a terminal: "));
}

export function onSubmit(event) {
  if (event.target.dataset.form !== "compare") return null;
  const values = new URLSearchParams();
  for (const [name, text] of new FormData(event.target)) if (text.trim()) values.set(name, text.trim());
  return values.has("from") ? `/changes?${values}` : null;
}

const list = (texts) =>
  texts.length ? el("ul", { class: "lines" }, texts.map((text) => el("li", {}, text))) : el("p", { class: "muted" }, "None.");
