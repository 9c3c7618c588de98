"""JSON for browsers. Integers that JavaScript cannot represent exactly become strings.

JavaScript's numbers are exact up to 2^53 - 1. Offsets, producer ids and integers in records may be
larger. `--output json` of the commands keeps numbers, because its readers have integers.

A text of a record or a request may have half of a pair of surrogates, which UTF-8 lacks. All of the
document is then ASCII with escapes.
"""

from __future__ import annotations

import json
from typing import Any

SAFE_INTEGER_MAX = (1 << 53) - 1


def json_text(document: Any) -> str:
    """Return `document` as JSON text for a browser."""
    exact = _exact(document)
    text = json.dumps(exact, ensure_ascii=False, separators=(",", ":"), default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(exact, separators=(",", ":"), default=str)
    return text


def _exact(value: Any) -> Any:
    match value:
        case bool():
            return value
        case int():
            return value if abs(value) <= SAFE_INTEGER_MAX else str(value)
        case dict():
            return {key: _exact(item) for key, item in value.items()}
        case list() | tuple():
            return [_exact(item) for item in value]
        case _:
            return value
