// A record that an editor writes: new, or another one edited and sent again.

import { commandLine, el } from "./dom.js";
import { may, post } from "./visitor.js";

const FORMS = { text: "Text", hex: "Hex", null: "Null (tombstone)" };
const state = { topic: "", draft: null, number: 0, result: null, problem: null };

const empty = () => ({ partition: "", key: { form: "text", text: "" }, value: { form: "text", text: "" }, headers: [], lines: "" });

const hexOf = (text) => [...new TextEncoder().encode(text)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");

// A part of a record as a form has it: JSON is text, and so are not carriage returns, which a field drops.
function editable({ form, text }) {
  if (form === "null") return { form, text: "" };
  if (form !== "hex" && text.includes("\r")) return { form: "hex", text: hexOf(text) };
  return { form: form === "hex" ? form : "text", text };
}

// What is shown must be the bytes: not a decoded form of them, nor the rest of a masked record.
export const isEditable = (record) =>
  !record.isMasked && record.headers.length === record.headerCount && [record.key, record.value, ...record.headers.map(([, part]) => part)].every(({ isExact }) => isExact);

// Whether a line of text has the whole header.
const isLine = ([name, { form, text }]) => form === "text" && name && !/[=\r\n]/.test(name) && !/[\r\n]/.test(text);

export function edit(topic, record) {
  const headers = record.headers.map(([name, part]) => [name, editable(part)]);
  // The order of headers counts: if one is not a line, all stay as they are.
  const areLines = headers.every(isLine);
  Object.assign(state, { topic, result: null, problem: null, number: state.number + 1, draft: {
    partition: String(record.partition), key: editable(record.key), value: editable(record.value),
    headers: areLines ? [] : headers, lines: areLines ? headers.map(([name, { text }]) => `${name}=${text}`).join("\n") : "",
  } });
}

function headersOf(lines) {
  return lines.split(/\r?\n/).filter((line) => line.trim()).map((line) => {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`Expected a header as NAME=VALUE, and not “${line}”.`);
    return [line.slice(0, at), { form: "text", text: line.slice(at + 1) }];
  });
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
      draft.headers.length > 0 && el("p", { class: "muted" }, `with the headers ${draft.headers.map(([name]) => name).join(", ")}, and`),
      el("label", { for: "send-headers" }, "Headers, a line each"),
      el("textarea", { id: "send-headers", name: "headers", rows: 2, spellcheck: "false", placeholder: "name=value" }, draft.lines),
      el("button", { type: "submit" }, "Send")),
    state.problem && el("p", { class: "problem", role: "alert" }, state.problem),
    state.result && el("p", { role: "status" }, `Sent: partition ${state.result.partition}, offset ${state.result.offset}`),
    state.result?.command && commandLine(state.result.command),
    state.result?.note && el("p", { class: "muted" }, state.result.note));
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
  // An empty key becomes null, unless the edited record has one: all empty keys go to the same partition.
  const isEmpty = state.draft?.key.form !== "null" && state.draft?.key.text === "";
  const key = values.key === "" && !isEmpty ? { form: "null", text: "" } : partOf("key");
  const partition = values.partition.trim() === "" ? null : Number(values.partition);
  const headers = [...(state.draft?.headers ?? [])];
  try {
    headers.push(...headersOf(values.headers));
  } catch (error) {
    Object.assign(state, { result: null, problem: error.message });
    context.redraw();
    return;
  }
  const response = await post("/api/send", { topic: state.topic, partition, key, value: partOf("value"), headers });
  const isSent = response.ok;
  Object.assign(state, {
    result: isSent ? await response.json() : null, problem: isSent ? null : (await response.text()).trim(),
  });
  context.redraw();
}
