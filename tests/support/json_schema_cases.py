"""Generated JSON Schemas and values, what these are as columns, and values with damage."""

import base64
import random
import string
from datetime import UTC, date, datetime, timedelta, timezone

NESTED_MAX = 3
LETTERS = string.ascii_letters + 'ü€😀\0 "\\'
TEXTS = {
    "date-time": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
    "base64": {"type": "string", "contentEncoding": "base64"},
}

STRANGERS = [None, True, False, 0, 1, 2.0, 2.5, -(2**63), 1e9, "", "A", "x", [], [1], {}]
STRANGERS += [{"p0": 1}, {"p0": None, "p1": 2}]
"""Values to put in the place of others, which they may fit."""


class Generator:
    """Schemas and values by seed; a value has its column beside it.

    Args:
        seed: of the dice.
        damage: how likely a part of a value is replaced by another value, and a required property
            is left out. Columns are then not those of the value.
    """

    def __init__(self, seed: int, damage: float = 0.0) -> None:
        self.dice = random.Random(seed)
        self.definitions = {}
        self.damage = damage

    def schema(self):
        """A schema of an object."""
        self.definitions = {}
        found = self._object(0)
        return found | {"definitions": self.definitions}

    def type(self, depth):
        kinds = ["integer", "number", "string", "boolean", "date-time", "date", "base64", "enum"]
        if depth < NESTED_MAX:
            kinds += ["array", "object", "map", "ref", "nullable"] * 2
        kind = self.dice.choice(kinds)
        return getattr(self, f"_{kind}", lambda _: TEXTS.get(kind, {"type": kind}))(depth)

    def _enum(self, _):
        return self.dice.choice([{"enum": ["A", "B"]}, {"type": "integer", "enum": [1, 2]}])

    def _array(self, depth):
        return {"type": "array", "items": self.type(depth + 1)}

    def _map(self, depth):
        return {"type": "object", "additionalProperties": self.type(depth + 1)}

    def _ref(self, depth):
        name = f"d{len(self.definitions)}"
        self.definitions[name] = {}
        self.definitions[name] = self.type(depth + 1)
        return {"$ref": f"#/definitions/{name}"}

    def _nullable(self, depth):
        found = self.type(depth + 1)
        simple = isinstance(found.get("type"), str) and "enum" not in found
        if simple and self.dice.random() < 0.5:
            return found | {"type": ["null", found["type"]]}
        word = self.dice.choice(["oneOf", "anyOf"])
        if not self.damage and self._allows_null(found):
            word = "anyOf"  # a null would fit two branches of oneOf
        return {word: self.dice.choice([[{"type": "null"}, found], [found, {"type": "null"}]])}

    def _allows_null(self, of):
        if "$ref" in of:
            return self._allows_null(self.definitions[of["$ref"].rpartition("/")[2]])
        branches = of.get("oneOf") or of.get("anyOf") or []
        return "null" in of.get("type", "") or any(map(self._allows_null, branches))

    def _object(self, depth):
        names = [f"p{n}" for n in range(self.dice.randrange(1, 5))]
        required = [each for each in names if self.dice.random() < 0.5]
        properties = {each: self.type(depth + 1) for each in names}
        return {"type": "object", "properties": properties, "required": required}

    # ---- values

    def value(self, of):
        """A value of a schema, and its column."""
        branches = of.get("oneOf") or of.get("anyOf")
        if "$ref" in of or branches:
            name = of.get("$ref", "").rpartition("/")[2]
            return self.value(self.dice.choice(branches) if branches else self.definitions[name])
        if self.damage and self.dice.random() < self.damage:
            return self._stranger(of), None
        return self._fitting(of)

    def _fitting(self, of):
        if "enum" in of:
            found = self.dice.choice(of["enum"])
            return found, found
        kind = of["type"]
        if isinstance(kind, list):
            return self.value(of | {"type": self.dice.choice(kind)})
        if kind == "object":
            return self._object_value(of) if "properties" in of else self._map_value(of)
        if kind == "array":
            items = [self.value(of["items"]) for _ in range(self._size())]
            return [each for each, _ in items], [each for _, each in items]
        return self._text(of) if kind == "string" else self._plain(kind)

    def _stranger(self, of):
        """Any value; no text if `jsonschema` would accept any text, which it may beside null."""
        is_form = of.get("format") == "date-time" or "contentEncoding" in of
        is_form = is_form or of.get("type") == "null"
        return self.dice.choice(
            [each for each in STRANGERS if not is_form or not isinstance(each, str)]
        )

    def _map_value(self, of):
        keys = ["".join(self.dice.choices(LETTERS, k=3)) for _ in range(self._size())]
        items = {each: self.value(of["additionalProperties"]) for each in keys}
        return {k: v[0] for k, v in items.items()}, [(k, v[1]) for k, v in items.items()]

    def _size(self):
        return self.dice.choice([0, 1, 2, 5])

    def _object_value(self, of):
        value, column = {}, {}
        for name, each in of["properties"].items():
            column[name] = None
            if name in of["required"]:
                is_there = not self.damage or self.dice.random() >= self.damage
            else:
                is_there = self.dice.random() < 0.8
            if is_there:
                value[name], column[name] = self.value(each)
        if self.dice.random() < 0.3:
            value["other"] = {"x": [1, None]}
        items = list(value.items())
        self.dice.shuffle(items)
        return dict(items), column

    def _text(self, of):
        dice = self.dice
        if of.get("format") == "date":
            found = date(1970, 1, 1) + timedelta(days=dice.randrange(-(10**5), 10**5))
            return found.isoformat(), found
        if of.get("format") == "date-time":
            zone = timezone(timedelta(minutes=dice.randrange(-700, 700)))
            micros = dice.choice([0, 1000, 1]) * dice.randrange(10**12)
            found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
            text = found.astimezone(zone).isoformat()
            return text.replace("+00:00", "Z"), found
        if "contentEncoding" in of:
            found = dice.randbytes(dice.randrange(9))
            return base64.b64encode(found).decode(), found
        found = "".join(dice.choices(LETTERS, k=dice.randrange(9)))
        return found, found

    def _plain(self, kind):
        dice = self.dice
        match kind:
            case "integer":
                found = dice.choice([0, -1, 2**63 - 1, -(2**63), dice.randrange(-999, 999)])
                return (float(found) if abs(found) < 1000 and dice.random() < 0.2 else found), found
            case "number":
                found = dice.choice([0, 7, 1.5, -1e300, dice.uniform(-9, 9)])
                return found, float(found)
            case "boolean":
                found = dice.random() < 0.5
                return found, found
        return None, None
