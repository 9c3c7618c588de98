// Spark pipelines, from the documents of their batches in a topic.

import { commandLine, count, duration, el, svg, table } from "./dom.js";

export const kinds = ["problem"];
export const title = () => "Pipelines";
const topicOf = (query) => query.get("topic") || "pipeline-batches";
export const source = (_, query) => `/api/pipelines?topic=${encodeURIComponent(topicOf(query))}`;

export function draw({ data, query, problem }) {
  return [
    el("h1", {}, "Pipelines"),
    el("form", { class: "tools", "data-form": "pipelines" },
      el("label", {}, "Topic of the batches ", el("input", { name: "topic", value: topicOf(query), size: 28, autocomplete: "off", spellcheck: "false" })),
      el("button", { type: "submit" }, "Show")),
    el("p", { class: "muted" }, "A Spark pipeline publishes a document of each batch if its file has ", el("code", {}, "batches_topic"), "."),
    !data && !problem && el("p", { class: "muted" }, "Loading …"),
    data && [
      data.problem && el("p", { class: "note" }, data.problem),
      data.folder && el("p", { class: "muted" }, "Batches in files beside the checkpoints below ", el("code", {}, data.folder), " are shown too."),
      data.damaged > 0 && el("p", { class: "note" }, `${count(data.damaged, "document")} of a batch cannot be read.`),
      data.pipelines.length ? summary(data.pipelines) : el("p", { class: "muted" }, "No pipeline has published a batch."),
      data.pipelines.map(one),
      commandLine(data.command),
      data.filesCommand && commandLine(data.filesCommand),
    ],
  ];
}

const shown = (number) => (number === null || number === undefined ? "—" : Number(number).toLocaleString("en-US"));
const rate = ({ records, seconds }) => (seconds > 0 ? `${Math.round(records / seconds).toLocaleString("en-US")}/s` : "—");
const at = (ms) => new Date(Number(ms)).toISOString().slice(0, 19).replace("T", " ");

const summary = (pipelines) =>
  table("Pipelines", ["Pipeline", "Last batch", "Ended (UTC)", "Records", "Rate", "Took", "Lag", "Late", "Damaged", "Watermark"], pipelines.map(({ pipeline, batches }) => {
    const last = batches.at(-1);
    return el("tr", { "data-key": `pipeline-${pipeline}` }, el("td", {}, pipeline), el("td", { class: "number" }, shown(last.batch)), el("td", {}, at(last.atMs)),
      el("td", { class: "number" }, shown(last.records)), el("td", { class: "number" }, rate(last)), el("td", { class: "number" }, duration(1000 * last.seconds)),
      el("td", { class: "number" }, shown(last.lag)), el("td", { class: "number" }, shown(last.late)), el("td", { class: last.damaged > 0 ? "number bad" : "number" }, shown(last.damaged)),
      el("td", {}, last.watermark?.slice(0, 19).replace("T", " ") ?? "—"));
  }));

const one = ({ pipeline, batches }) =>
  batches.length > 1 && el("section", {}, el("h2", {}, pipeline), bars(batches),
    el("details", { "data-key": `batches-${pipeline}` }, el("summary", {}, "Batches, newest first"),
      table(`Batches of ${pipeline}`, ["Batch", "Ended (UTC)", "Records", "Rate", "Took", "Lag", "State rows"], [...batches].reverse().map((each) =>
        el("tr", {}, el("td", { class: "number" }, shown(each.batch)), el("td", {}, at(each.atMs)), el("td", { class: "number" }, shown(each.records)), el("td", { class: "number" }, rate(each)),
          el("td", { class: "number" }, duration(1000 * each.seconds)), el("td", { class: "number" }, shown(each.lag)), el("td", { class: "number" }, shown(each.state_rows)))))));

// A bar per batch: how long it took.
function bars(batches) {
  const most = Math.max(...batches.map(({ seconds }) => seconds), 0.001);
  return el("figure", { class: "trend" },
    svg("svg", { width: batches.length * 8, height: 44, class: "density", role: "img", "aria-label": `The last ${batches.length} batches took at most ${duration(1000 * most)}` },
      batches.map(({ seconds }, number) => svg("rect", { x: number * 8, y: 42 - (40 * seconds) / most, width: 6, height: Math.max(1, (40 * seconds) / most) }))),
    el("figcaption", { class: "muted" }, `Time of the last ${batches.length} batches, at most ${duration(1000 * most)}`));
}

export function onSubmit(event) {
  if (event.target.dataset.form !== "pipelines") return null;
  return `/pipelines?topic=${encodeURIComponent(new FormData(event.target).get("topic").trim())}`;
}
