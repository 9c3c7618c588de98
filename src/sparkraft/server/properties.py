r"""Reads Java's `.properties` text: the form of `server.properties` and `meta.properties`.

`#` and `!` start comments; `=`, `:` or blanks part key and value; a backslash continues a line and
escapes (`\n`, `\u00e9`, `\:`). Not here: the meaning of keys (`sparkraft.server.config`).
"""

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def parse_properties(text: str) -> dict[str, str]:
    r"""Keys and values in the order of the text; a repeated key's last value wins.

    Raises:
        ValueError: for a malformed `\uXXXX`, naming the line.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            found[_unescape(key)] = _unescape(value)
        except ValueError as error:
            raise ValueError(f"line {number}: malformed \\u escape in {line[:80]!r}") from error
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines with their continuations joined, without comments and empty ones."""
    lines: list[tuple[int, str]] = []
    held: str | None = None
    started = 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANKS)
        if held is None:
            if not line or line[0] in "#!":
                continue
            started, held = number, ""
        held += line
        if (len(held) - len(held.rstrip("\\"))) % 2:
            held = held[:-1]
            continue
        lines.append((started, held))
        held = None
    if held:
        lines.append((started, held))
    return lines


def _split(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(_BLANKS)
    if rest[:1] in {"=", ":"} and rest:
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\":
            out.append(char)
            continue
        escaped = text[at : at + 1]
        at += 1
        if escaped == "u":
            out.append(chr(int(text[at : at + 4], 16)))
            at += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)
