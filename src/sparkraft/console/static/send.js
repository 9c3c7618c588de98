// A record that an editor writes: new, or another one edited and sent again.

import { commandLine, el } from "./dom.js";
import { may, post } from "./visitor.js";

const FORMS = { text: "Text", hex: "Hex", null: "Null (tombstone)" };
const state = { topic: "", draft: null, number: 0, result: null, problem: null };

const empty = () => ({ partition: "", key: { form: "text", text: "" }, value: { form: "text", text: "" }, headers: [] });

// A part of a record as a form has it: JSON is text, and what was cut cannot be edited.
const editable = ({ form, text }) => ({ form: form === "null" || form === "hex" ? form : "text", text: form === "null" ? "" : text });

export const isEditable = (record) =>
  [record.key, record.value, ...record.headers.map(([, part]) => part)].every(({ form, isCut }) => !isCut && form !== "int");

export function edit(topic, record) {
  Object.assign(state, { topic, result: null, problem: null, number: state.number + 1, draft: {
    partition: String(record.partition), key: editable(record.key), value: editable(record.value),
    headers: record.headers.map(([name, part]) => [name, editable(part)]),
  } });
}

export function draw(topic) {
  if (!may("editor")) return null;
  if (state.topic !== topic) Object.assign(state, { topic, draft: null, result: null, problem: null });
  const draft = state.draft ?? empty();
  return el("details", { class: "send", "data-key": `send-${topic}-${state.number}`, open: state.draft !== null },
    el("summary", {}, "Send a record"),
    el("form", { "data-form": "send" },
      el("label", {}, "To partition ", el("input", { name: "partition", value: draft.partition, placeholder: "by key", size: 6, inputmode: "numeric" })),
      part("Key", "key", draft.key), part("Value", "value", draft.value),
      draft.headers.length ? el("p", { class: "muted" }, `with the headers ${draft.headers.map(([name]) => name).join(", ")}`) : null,
      el("button", { type: "submit" }, "Send")),
    state.problem && el("p", { class: "problem", role: "alert" }, state.problem),
    state.result && el("p", { role: "status" }, `Sent: partition ${state.result.partition}, offset ${state.result.offset}`),
    state.result?.command && commandLine(state.result.command));
}

const part = (label, name, { form, text }) =>
  el("div", { class: "part-of-record" },
    el("label", {}, `${label} as `, el("select", { name: `${name}-form` }, Object.entries(FORMS).map(([value, shown]) =>
      el("option", { value, selected: value === form }, shown)))),
    el("label", { for: `send-${name}` }, label),
    el("textarea", { id: `send-${name}`, name, rows: name === "key" ? 1 : 4, spellcheck: "false" }, text));

export async function submit(form, context) {
  const values = Object.fromEntries(new FormData(form));
  const partOf = (name) => ({ form: values[`${name}-form`], text: values[name] });
  // An empty key is no key: every record without one would go to the same partition.
  const key = values.key === "" ? { form: "null", text: "" } : partOf("key");
  const partition = values.partition.trim() === "" ? null : Number(values.partition);
  const response = await post("/api/send", {
    topic: state.topic, partition, key, value: partOf("value"), headers: state.draft?.headers ?? [],
  });
  const isSent = response.ok;
  Object.assign(state, {
    result: isSent ? await response.json() : null, problem: isSent ? null : (await response.text()).trim(),
  });
  context.redraw();
}
