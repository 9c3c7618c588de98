"""Bytes for a person to read, with a caret under the one that was wrong."""

_WIDTH = 16


def hexdump(data: bytes, at: int = -1) -> str:
    """Lines of 16 bytes as hex and text; `at` marks a byte, -1 none."""
    lines: list[str] = []
    for start in range(0, len(data), _WIDTH):
        row = data[start : start + _WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)  # noqa: PLR2004
        lines.append(f"{start:08x}  {row.hex(' '):<{_WIDTH * 3}} {text}")
        if start <= at < start + _WIDTH:
            lines.append(" " * (10 + 3 * (at - start)) + "^^ here")
    return "\n".join(lines)
