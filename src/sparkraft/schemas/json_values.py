"""How decoded values become JSON values, for all formats.

Numbers keep all their digits. Values that JSON lacks have forms of their own: bytes are
`{"base64": "..."}`, as in `console-consumer --output json`, and the numbers NaN and Infinity are
texts, as in Protobuf's JSON mapping.
"""

from __future__ import annotations

import base64
import math
from typing import Any


class Opaque(dict[str, Any]):
    """An object that stands for a single value: no schema has fields in it."""


def bytes_json(value: bytes) -> Opaque:
    """Bytes that are not text."""
    return Opaque(base64=base64.b64encode(value).decode())


def number_json(value: float) -> float | str:
    """A floating-point number."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
