// Text of streams and of JSON.

// The documents of a response, a line each, as they arrive.
export async function* asLines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) yield JSON.parse(line);
  }
  if (rest) yield JSON.parse(rest);
}

// JSON text with line breaks. It is not parsed, because numbers would lose digits.
export function indented(text) {
  let depth = 0;
  let isText = false;
  let out = "";
  const line = () => `\n${"  ".repeat(Math.max(0, depth))}`;
  for (let at = 0; at < text.length; at++) {
    const c = text[at];
    if (isText) {
      out += c;
      if (c === "\\") out += text[++at] ?? "";
      else if (c === '"') isText = false;
    } else if (c === '"') {
      isText = true;
      out += c;
    } else if (c === "{" || c === "[") {
      const close = text.slice(at + 1).match(/^\s*([}\]])/);
      if (close) {
        out += c + close[1];
        at += close[0].length;
      } else {
        depth++;
        out += c + line();
      }
    } else if (c === "}" || c === "]") {
      depth--;
      out += line() + c;
    } else if (c === ",") out += c + line();
    else if (c === ":") out += ": ";
    else if (!/\s/.test(c)) out += c;
  }
  return out;
}
