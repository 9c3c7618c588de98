"""JSON Schemas: parsed to types that have columns.

`parse_json_schema` reads a schema of draft 4 or later. It has columns if each part has one type:

    {"type": "object", "properties": …}         an object of these properties
    {"type": "object", "additionalProperties": S}   a map, if it names no properties
    {"type": "array", "items": S}               an array
    integer, number, string, boolean, null      a value
    ["null", T], or anyOf or oneOf of null and S   the same, and null; none by oneOf if S allows it
    {"$ref": "#/definitions/NAME"}, allOf of one schema   what they refer to
    enum, const                                 the only values; their type, if no other is given
    {}, true, {"type": "object"}                any value, as the text of its JSON

Of strings, `format` date-time and date and `contentEncoding` base64 have types of their own. Other
keywords, such as `pattern` and `maximum`, restrict values and are not checked; properties that a
schema does not name are allowed.

Not here: values (`pipeline.json_schema_values`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sparkraft.schemas.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DEPTH_MAX: Final = 50
"""Types in types: each is a recursive call."""

_SCALARS: Final = ("integer", "number", "string", "boolean", "null")
_FORMATS: Final = frozenset({"date-time", "date"})

_UNSUPPORTED: Final = (
    "patternProperties", "prefixItems", "if", "not", "dependentSchemas", "$dynamicRef",
    "$recursiveRef",
)  # fmt: skip
"""Keywords that make the type of a value depend on other values, or on names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonScalar:
    """A value without parts.

    Attributes:
        kind: integer, number, string, boolean, or null.
        form: of a string: date-time, date or base64; else empty.
        allowed: the only values; None if the schema names none.
    """

    kind: str
    form: str = ""
    allowed: tuple[Any, ...] | None = None
    is_nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonAny:
    """Any value, or any object; a column of its JSON."""

    is_object: bool = False
    is_nullable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonArray:
    """An array."""

    items: JsonType
    is_nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonMap:
    """An object with any names."""

    values: JsonType
    is_nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonProperty:
    """A property of an object."""

    name: str
    type: JsonType
    is_required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonObject:
    """An object with known properties; others are passed over."""

    properties: tuple[JsonProperty, ...]
    is_nullable: bool = False


JsonType = JsonScalar | JsonAny | JsonArray | JsonMap | JsonObject


def parse_json_schema(text: str, *, references: Sequence[tuple[str, str]] = ()) -> JsonType:
    """The type that a schema defines.

    Args:
        text: of the schema.
        references: names and texts of other schemas, to which `$ref` refers by name.

    Raises:
        SchemaError: the text is not a JSON Schema, or has no columns.
    """
    documents = {name: _read(other) for name, other in references}
    return _Parser(documents | {"": _read(text)}).type(_read(text), "", "the value", ())


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the JSON schema is not JSON: {error}") from None


def name_of(kind: JsonType) -> str:
    """The type in messages."""
    match kind:
        case JsonScalar():
            return kind.form or kind.kind
        case JsonAny():
            return "an object" if kind.is_object else "any value"
        case JsonArray():
            return "an array"
        case _:
            return "an object"


def has_any(of: JsonType) -> bool:
    """Whether a part may be any JSON."""
    match of:
        case JsonScalar():
            return False
        case JsonAny():
            return True
        case JsonArray():
            return has_any(of.items)
        case JsonMap():
            return has_any(of.values)
        case JsonObject():
            return any(has_any(each.type) for each in of.properties)


class _Parser:
    """Parses the documents of a schema; the one that is named by nothing is its own."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents

    def type(self, given: Any, document: str, place: str, within: tuple[str, ...]) -> JsonType:
        """The type of a part of a document; `within` are the references that lead to it."""
        if given is True or given == {}:
            return JsonAny()
        if not isinstance(given, dict):
            raise SchemaError(f"the JSON schema has no type for {place}: {_shown(given)}")
        if len(within) > _DEPTH_MAX:
            raise SchemaError(f"the JSON schema has more than {_DEPTH_MAX} nested types")
        for keyword in _UNSUPPORTED:
            if keyword in given:
                raise SchemaError(f"the JSON schema has {keyword} for {place}: not supported")
        if "$ref" in given:
            return self._referred(str(given["$ref"]), document, place, within)
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in given:
                return self._one_of(given, keyword, document, place, within)
        return self._single(given, document, place, (*within, ""))

    def _referred(
        self, reference: str, document: str, place: str, within: tuple[str, ...]
    ) -> JsonType:
        name, _, pointer = reference.partition("#")
        name = name or document
        target = f"{name}#{pointer}"
        if target in within:
            raise SchemaError(f"the JSON schema is recursive: {reference} contains itself")
        if name not in self._documents:
            raise SchemaError(f"the JSON schema refers to {reference}, which is not known")
        found = self._documents[name]
        for part in filter(None, pointer.split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            elif isinstance(found, dict) and key in found:
                found = found[key]
            else:
                raise SchemaError(f"the JSON schema refers to {reference}, which it lacks")
        return self.type(found, name, place, (*within, target))

    def _one_of(
        self, given: dict[str, Any], keyword: str, document: str, place: str,
        within: tuple[str, ...],
    ) -> JsonType:  # fmt: skip
        """A schema that is that of its only branch, besides null."""
        branches = given[keyword]
        if not isinstance(branches, list) or not branches:
            raise SchemaError(f"the JSON schema has no branches in {keyword} of {place}")
        others = [each for each in branches if not _is_null(each)]
        if len(others) > 1 or (keyword == "allOf" and len(branches) > 1):
            raise SchemaError(
                f"the JSON schema has several types in {keyword} of {place}: not supported"
            )
        if set(given) & {"type", "properties", "items", "enum", "const"}:
            raise SchemaError(f"the JSON schema has a type beside {keyword} of {place}")
        if not others:
            return JsonScalar(kind="null", is_nullable=True)
        found = self.type(others[0], document, place, (*within, ""))
        allowing_null = len(branches) - len(others) + found.is_nullable
        # A null that fits two branches of oneOf fits none of the schema.
        is_nullable = allowing_null == 1 if keyword == "oneOf" else allowing_null > 0
        return replace(found, is_nullable=is_nullable)

    def _single(
        self, given: dict[str, Any], document: str, place: str, within: tuple[str, ...]
    ) -> JsonType:
        kinds, allowed = _kinds(given, place), _allowed(given)
        is_nullable = "null" in kinds and (allowed is None or None in allowed)
        kinds = [each for each in kinds if each != "null"]
        if set(kinds) == {"integer", "number"}:
            kinds = ["number"]
        if not kinds:
            if "null" in _kinds(given, place):
                return JsonScalar(kind="null", is_nullable=True)
            return JsonAny()
        if len(kinds) > 1:
            raise SchemaError(
                f"the JSON schema has several types for {place}: {', '.join(kinds)}; not supported"
            )
        if kinds[0] in _SCALARS:
            return JsonScalar(
                kind=kinds[0], form=_form(given, kinds[0]), allowed=allowed, is_nullable=is_nullable
            )
        if kinds[0] == "array":
            return self._array(given, document, place, within, is_nullable=is_nullable)
        return self._object(given, document, place, within, is_nullable=is_nullable)

    def _array(
        self, given: dict[str, Any], document: str, place: str, within: tuple[str, ...],
        *, is_nullable: bool,
    ) -> JsonType:  # fmt: skip
        items = given.get("items", True)
        if isinstance(items, list):
            raise SchemaError(f"the JSON schema has a type for each item of {place}: not supported")
        found = self.type(items, document, f"an item of {place}", within)
        return JsonArray(items=found, is_nullable=is_nullable)

    def _object(
        self, given: dict[str, Any], document: str, place: str, within: tuple[str, ...],
        *, is_nullable: bool,
    ) -> JsonType:  # fmt: skip
        properties, others = given.get("properties"), given.get("additionalProperties")
        if not properties and isinstance(others, dict):
            values = self.type(others, document, f"an entry of {place}", within)
            return JsonMap(values=values, is_nullable=is_nullable)
        if not properties:
            return JsonAny(is_object=True, is_nullable=is_nullable)
        if not isinstance(properties, dict):
            raise SchemaError(f"the JSON schema has no names in properties of {place}")
        required = given.get("required", [])
        if not isinstance(required, list) or set(required) - set(properties):
            raise SchemaError(f"the JSON schema requires properties of {place} that it lacks")
        prefix = "" if place == "the value" else f"{place.removeprefix('field ')}."
        found = [
            JsonProperty(
                name=name,
                type=self.type(each, document, f"field {prefix}{name}", within),
                is_required=name in required,
            )
            for name, each in properties.items()
        ]
        return JsonObject(properties=tuple(found), is_nullable=is_nullable)


def _is_null(given: Any) -> bool:
    return isinstance(given, dict) and given.get("type") == "null"


def _kinds(given: dict[str, Any], place: str) -> list[str]:
    """The types that a schema names, or that follow from its other keywords."""
    kinds = given.get("type")
    if kinds is None:
        kinds = _implied(given)
    listed = [kinds] if isinstance(kinds, str) else kinds
    known = (*_SCALARS, "array", "object")
    for each in listed if isinstance(listed, list) else [kinds]:
        if each not in known:
            raise SchemaError(f"the JSON schema has no type {_shown(each)}, as {place} has")
    return list(dict.fromkeys(listed))


def _implied(given: dict[str, Any]) -> list[str]:
    allowed = _allowed(given)
    if allowed is not None:
        return [_kind_of(each) for each in allowed]
    if "properties" in given:
        return ["object"]
    return ["array"] if "items" in given else []


def _kind_of(value: Any) -> str:
    kinds: dict[type, str] = {
        bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null",
        list: "array",
    }  # fmt: skip
    return kinds.get(type(value), "object")


def _allowed(given: dict[str, Any]) -> tuple[Any, ...] | None:
    found = given.get("enum", [given["const"]] if "const" in given else None)
    if found is None:
        return None
    if not isinstance(found, list) or any(isinstance(each, list | dict) for each in found):
        raise SchemaError(f"the JSON schema has values in enum that are not single: {found!r}")
    return tuple(found)


def _form(given: dict[str, Any], kind: str) -> str:
    if kind != "string":
        return ""
    if given.get("contentEncoding") == "base64":
        return "base64"
    form = given.get("format", "")
    return form if form in _FORMATS else ""


def _shown(value: Any) -> str:
    return json.dumps(value)[:60]
