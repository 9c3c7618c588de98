"""JSON as Kafka's writer (Jackson) has it: UTF-8, no spaces, fields in the order of the value."""

import json
import re
from typing import Any, NamedTuple

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_ESCAPED = re.compile(r"\\\\|\\u00[0-9a-f]{2}")
"""An escaped backslash, or an escaped control character."""


class ZnodeError(Exception):
    """A znode's data is malformed: Kafka's reader fails on it, too.

    Attributes:
        path: the znode.
        reason: the expected and the present data.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class NewerZnodeError(ZnodeError):
    """A znode has a version that Kafka 3.9 rejects."""


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encode(value: object) -> bytes:
    """Encode as Jackson does: the hexadecimal digits of escapes are capital letters."""
    text = _ENCODER.encode(value)
    if "\\" not in text:
        return text.encode()
    return _ESCAPED.sub(lambda found: found[0][:2] + found[0][2:].upper(), text).encode()


def encode_number(number: int) -> bytes:
    """Encode a decimal number without JSON, as `/controller_epoch` has it."""
    return str(number).encode()


def decode_number(path: str, data: bytes) -> int:
    """Decode a decimal number without JSON.

    Raises:
        ZnodeError: not an int32.
    """
    text = data.decode(errors="replace")
    if not re.fullmatch(r"[+-]?[0-9]{1,11}", text) or abs(int(text)) > INT_MAX:
        raise ZnodeError(path, f"expected a number, got {text[:60]!r}")
    return int(text)


class Fields(NamedTuple):
    """The fields of a JSON object, read with the types that Kafka requires."""

    path: str
    values: dict[str, Any]

    @classmethod
    def decode(cls, path: str, data: bytes) -> "Fields":
        """Decode a JSON object.

        Raises:
            ZnodeError: not one.
        """
        try:
            values = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ZnodeError(path, f"expected JSON, got {data[:60]!r}") from error
        return cls.of(path, values)

    @classmethod
    def of(cls, path: str, values: object) -> "Fields":
        if not isinstance(values, dict):
            raise ZnodeError(path, f"expected a JSON object, got {str(values)[:60]!r}")
        return cls(path, values)

    def _get(self, name: str) -> Any:
        if name not in self.values:
            raise ZnodeError(self.path, f"no field {name!r}")
        return self.values[name]

    def _fail(self, name: str, kind: str) -> ZnodeError:
        value = str(self.values[name])[:60]
        return ZnodeError(self.path, f"expected {kind} in field {name!r}, got {value!r}")

    def integer(self, name: str, *, maximum: int = INT_MAX) -> int:
        """An int32, or an int64 with `maximum` LONG_MAX; no boolean, no text."""
        value = self._get(name)
        if type(value) is not int or not -maximum - 1 <= value <= maximum:
            raise self._fail(name, "an integer")
        return value

    def text(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, str):
            raise self._fail(name, "text")
        return value

    def long_text(self, name: str) -> int:
        """An int64 that is written as text."""
        text = self.text(name)
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text) or abs(int(text)) > LONG_MAX:
            raise self._fail(name, "an int64 as text")
        return int(text)

    def integers(self, name: str) -> tuple[int, ...]:
        value = self._get(name)
        if not isinstance(value, list) or any(type(each) is not int for each in value):
            raise self._fail(name, "an array of integers")
        return tuple(value)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._fail(name, "an array of texts")
        return tuple(value)

    def objects(self, name: str) -> "list[Fields]":
        value = self._get(name)
        if not isinstance(value, list):
            raise self._fail(name, "an array")
        return [Fields.of(self.path, each) for each in value]

    def object(self, name: str) -> "Fields":
        return Fields.of(self.path, self._get(name))

    def check_version(self, lowest: int, highest: int) -> int:
        """Return the version.

        Raises:
            NewerZnodeError: above `highest`.
            ZnodeError: below `lowest`, or no number.
        """
        version = self.integer("version")
        if version > highest:
            raise NewerZnodeError(self.path, f"version {version}; Kafka 3.9 reads up to {highest}")
        if version < lowest:
            raise ZnodeError(self.path, f"unsupported version {version}")
        return version
