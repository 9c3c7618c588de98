"""Definitions of config keys: how their text is parsed and validated.

Kafka stores every config value as text; type, range and default belong to the key. The checks here
accept and reject exactly the values that Kafka's do.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntEnum

from sparkraft.base.errors import ErrorCode, KafkaError

ConfigValue = bool | int | float | str | tuple[str, ...] | None
"""A parsed value: lists are tuples of text, classes and passwords are text."""

Check = Callable[[ConfigValue], str | None]
"""Returns the reason that a value is invalid, or None."""


class ConfigType(IntEnum):
    """Types of config values; the numbers are those of DescribeConfigs v3+."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(IntEnum):
    """The importance of a key, as Kafka documents it."""

    HIGH = 0
    MEDIUM = 1
    LOW = 2


class UpdateMode(Enum):
    """How a broker config can be updated (KIP-226)."""

    READ_ONLY = "read-only"
    """Requires a change of the node's file and a restart."""
    PER_BROKER = "per-broker"
    """May be updated dynamically for each broker."""
    CLUSTER_WIDE = "cluster-wide"
    """May be updated dynamically for each broker or as a cluster-wide default."""


BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
SHORT = ConfigType.SHORT
LONG = ConfigType.LONG
DOUBLE = ConfigType.DOUBLE
LIST = ConfigType.LIST
CLASS = ConfigType.CLASS
PASSWORD = ConfigType.PASSWORD
HIGH = Importance.HIGH
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW
READ_ONLY = UpdateMode.READ_ONLY
PER_BROKER = UpdateMode.PER_BROKER
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE

REQUIRED: tuple[str, ...] = ("<required>",)
"""As a default: the key has none and must be given (compare with `is`)."""

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
DOUBLE_MAX = 1.7976931348623157e308

_BITS = {SHORT: 16, INT: 32, LONG: 64}
_DOUBLE_STARTS = frozenset(".0123456789NI")
_DIGITS_MAX = 20
"""No 64-bit number has more; keeps Python from parsing a megabyte of digits."""


class ConfigDef:
    """One configuration key.

    Args:
        name: the key.
        kind: type of its value.
        default: default value in parsed form; `REQUIRED` if there is none.
        check: validates the parsed value; the type is checked before.
        importance: as Kafka ranks it.
        dynamic: when it may change (broker keys; others are always dynamic).
        internal: not listed nor described, as Kafka's internal keys.
        doc: one sentence of documentation; may be empty.
    """

    __slots__ = ("check", "default", "doc", "dynamic", "importance", "internal", "kind", "name")

    def __init__(  # noqa: PLR0913 (a declaration: each argument is a column)
        self,
        name: str,
        kind: ConfigType,
        *,
        default: ConfigValue,
        check: Check | None = None,
        importance: Importance = MEDIUM,
        dynamic: UpdateMode = READ_ONLY,
        internal: bool = False,
        doc: str = "",
    ) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.check = check
        self.importance = importance
        self.dynamic = dynamic
        self.internal = internal
        self.doc = doc

    def __repr__(self) -> str:
        """Name, type and default."""
        return f"ConfigDef({self.name}, {self.kind.name}, default={self.default!r})"

    @property
    def required(self) -> bool:
        """Whether the key has no default."""
        return self.default is REQUIRED

    @property
    def sensitive(self) -> bool:
        """Whether the value is secret."""
        return self.kind is PASSWORD


def at_least(low: float) -> Check:
    """A number of at least `low`."""
    return between(low, None)


def between(low: float, high: float | None) -> Check:
    """A number from `low` to `high`, both inclusive; no upper bound if `high` is None."""

    def check(value: ConfigValue) -> str | None:
        if not isinstance(value, int | float):
            return "Value must be non-null"
        if value < low:
            return f"Value must be at least {low}"
        if high is not None and value > high:
            return f"Value must be no more than {high}"
        return None

    return check


def one_of(*allowed: str, ignore_case: bool = False) -> Check:
    """One of the given words."""
    fold = str.lower if ignore_case else str
    folded = tuple(fold(word) for word in allowed)

    def check(value: ConfigValue) -> str | None:
        if isinstance(value, str) and fold(value) in folded:
            return None
        cases = " (case insensitive)" if ignore_case else ""
        return f"String must be one of{cases}: {', '.join(allowed)}"

    return check


def list_of(*allowed: str, empty: bool = True, null: bool = False) -> Check:
    """A list without duplicate or empty items; if words are given, of these words."""

    def check(value: ConfigValue) -> str | None:
        if not isinstance(value, tuple):
            return None if null else "the list must not be null"
        if not value and not empty:
            return "the list must not be empty"
        if len(set(value)) != len(value):
            return "the list has duplicate items"
        for item in value:
            if not item:
                return "an item of the list is empty"
            if allowed and item not in allowed:
                return f"String must be one of: {', '.join(allowed)}"
        return None

    return check


def not_empty(value: ConfigValue) -> str | None:
    """A text that is not empty, or None."""
    return "String must be non-empty" if value == "" else None


def not_null(value: ConfigValue) -> str | None:
    """Any value but None."""
    return "entry must be non null" if value is None else None


_DURATION = (
    r"\+?P(?=.)(\+?[0-9]+D)?"
    r"(T(?=.)(\+?[0-9]+H)?(\+?[0-9]+M)?(\+?[0-9]+([.,][0-9]{0,9})?S)?)?"
)


def share_auto_offset_reset(value: ConfigValue) -> str | None:
    """latest, earliest, or by_duration: and an ISO 8601 duration that is not negative."""
    if value in {"latest", "earliest"}:
        return None
    duration = value.removeprefix("by_duration:") if isinstance(value, str) else ""
    if duration != value and re.fullmatch(_DURATION, duration, re.IGNORECASE):
        return None
    return "must be latest, earliest or by_duration:PnDTnHnMn.nS"


def gzip_level(value: ConfigValue) -> str | None:
    """-1 for zlib's default, or 1 to 9."""
    good = isinstance(value, int) and (value == -1 or 1 <= value <= 9)  # noqa: PLR2004
    return None if good else "Value must be between 1 and 9 or equal to -1"


_THROTTLE = r"[0-9]+:[0-9]+"


def throttled_replicas(value: ConfigValue) -> str | None:
    """`*`, or a list of partition:broker."""
    if value in {(), ("*",)}:
        return None
    if isinstance(value, tuple) and all(re.fullmatch(_THROTTLE, item) for item in value):
        return None
    return "must be '*' or a list of partitionId:brokerId"


def by_name(definitions: Sequence[ConfigDef]) -> Mapping[str, ConfigDef]:
    """The definitions by name, sorted."""
    return {d.name: d for d in sorted(definitions, key=lambda d: d.name)}


def parse_value(definition: ConfigDef, text: str | None) -> ConfigValue:
    """Parse the text of a value.

    Raises:
        KafkaError: INVALID_CONFIG if it has the wrong type or is out of range.
    """
    if text is None:
        value: ConfigValue = None
    else:
        value = _parse(definition, text)
    if definition.check is not None:
        wrong = definition.check(value)
        if wrong is not None:
            raise invalid(definition.name, text, wrong)
    return value


def invalid(name: str, text: str | None, wrong: str) -> KafkaError:
    """The error for an invalid value, with Kafka's message."""
    shown = "null" if text is None else text[:200]
    return KafkaError(
        ErrorCode.INVALID_CONFIG, f"Invalid value {shown} for configuration {name}: {wrong}"
    )


def _parse(definition: ConfigDef, text: str) -> ConfigValue:
    trimmed = text.strip()
    match definition.kind:
        case ConfigType.BOOLEAN:
            if trimmed.lower() not in {"true", "false"}:
                raise invalid(definition.name, text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            return _parse_integer(definition, text, trimmed)
        case ConfigType.DOUBLE:
            return _parse_double(definition, text, trimmed)
        case ConfigType.LIST:
            return tuple(item.strip() for item in trimmed.split(",")) if trimmed else ()
        case _:
            return trimmed


def _parse_integer(definition: ConfigDef, text: str, trimmed: str) -> int:
    wrong = f"Not a number of type {definition.kind.name}"
    digits = trimmed[1:] if trimmed[:1] in {"+", "-"} else trimmed
    if not (digits.isascii() and digits.isdecimal()) or len(digits.lstrip("0")) > _DIGITS_MAX:
        raise invalid(definition.name, text, wrong)
    value = int(trimmed)
    half = 1 << (_BITS[definition.kind] - 1)
    if not -half <= value < half:
        raise invalid(definition.name, text, wrong)
    return value


def _parse_double(definition: ConfigDef, text: str, trimmed: str) -> float:
    bare = trimmed[:-1] if trimmed[-1:] in {"f", "F", "d", "D"} else trimmed
    # Python reads more than Java does: underscores, other scripts' digits, "inf" and "nan".
    words = bare.lstrip("+-")
    java = bare.isascii() and "_" not in bare and (words[:1] in _DOUBLE_STARTS)
    if java and (words[:1] not in {"N", "I"} or words in {"NaN", "Infinity"}):
        try:
            return float(bare)
        except ValueError:
            pass
    raise invalid(definition.name, text, "Not a number of type DOUBLE")


def format_value(value: ConfigValue) -> str | None:
    """Format a parsed value as Kafka does."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return java_double(value)
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def java_double(value: float) -> str:
    """A double as Java writes it: 0.5, 1.7976931348623157E308."""
    if value != value or value in {float("inf"), float("-inf")}:  # noqa: PLR0124 (NaN)
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")  # noqa: PLR0124
    text = repr(value)
    if value != 0 and not 1e-3 <= abs(value) < 1e7:  # noqa: PLR2004 (Java's bounds for plain notation)
        exponent = f"{value:.17e}".partition("e")[2]
        return f"{_shortest_mantissa(text)}E{int(exponent)}"
    return text


def _shortest_mantissa(text: str) -> str:
    """The shortest digits that round-trip, with one digit before the point."""
    sign = "-" if text.startswith("-") else ""
    bare = text.lstrip("-").partition("e")[0].replace(".", "").lstrip("0").rstrip("0") or "0"
    return f"{sign}{bare[0]}.{bare[1:] or '0'}"
