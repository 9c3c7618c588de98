"""JSON numbers with all of their digits.

Python reads a number with a fraction or an exponent as a double. That changes most numbers of more
than 16 digits, and makes infinity of those above 1.8e308. `ExactNumbers` keeps the text of such a
number, and `text_of` writes it again.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

_LONG_END: Final = 1 << 63
_DIGITS_MAX: Final = 19
"""Of an integer of 64 bits."""


class ExactFloat(float):
    """A double whose `str` is the text that it was read from."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        """Read `text`, as `float` does."""
        self._text = text

    def __str__(self) -> str:
        return self._text


class ExactNumbers:
    """The `parse_float` of `json.loads`: a double, or an `ExactFloat` if its text differs."""

    def __init__(self) -> None:
        self.has_exact = False
        """Whether there was an `ExactFloat`."""

    def __call__(self, text: str) -> float:
        found = float(text)
        if repr(found) == text:
            return found
        self.has_exact = True
        return ExactFloat(text)


def whole_number(value: float) -> int | None:
    """The number that `ExactNumbers` read, if it is an integer of 64 bits."""
    try:
        exact = Decimal(str(value))
    except InvalidOperation:  # an exponent beyond those of decimals
        return None
    if exact and exact.adjusted() >= _DIGITS_MAX:
        return None
    found = int(exact)
    return found if found == exact and -_LONG_END <= found < _LONG_END else None


def refuse_constant(text: str) -> NoReturn:
    """The `parse_constant` of `json.loads`: JSON has neither NaN nor Infinity."""
    raise ValueError(f"{text} is not a number of JSON")


_UNICODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ASCII: Final = json.JSONEncoder(separators=(",", ":"))


def text_of(value: Any, *, has_exact: bool) -> str:
    """The JSON of a value. Half of a pair of surrogates, which is not UTF-8, stays escaped.

    Args:
        value: as `json.loads` returns it.
        has_exact: whether an `ExactFloat` may be in it.

    Raises:
        RecursionError: it has too many nested arrays and objects.
    """
    write = _written if has_exact else _encoded
    text = write(value, _UNICODE)
    try:
        text.encode()
    except UnicodeEncodeError:
        return write(value, _ASCII)
    return text


def _encoded(value: Any, encoder: json.JSONEncoder) -> str:
    return encoder.encode(value)


def _written(value: Any, encoder: json.JSONEncoder) -> str:
    if isinstance(value, dict):
        members = [
            f"{encoder.encode(name)}:{_written(each, encoder)}" for name, each in value.items()
        ]
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join([_written(each, encoder) for each in value])}]"
    return str(value) if isinstance(value, ExactFloat) else encoder.encode(value)
