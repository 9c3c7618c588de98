"""Generated Avro schemas and values, and what they are as columns."""

import io
import random
import string
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import fastavro

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NESTED_MAX = 3
UNION = ("null", "int", "string", "boolean", "double", "bytes", "long", "float")
LETTERS = string.ascii_letters + "ü€😀\0 "


class Generator:
    """Schemas and values by seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.names = 0

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def record(self):
        """A schema of a record."""
        return self._record(0)

    def type(self, depth, *, union=True):
        kinds = [*PRIMITIVES, "enum", "fixed", "date", "millis", "micros", "decimal", "digits"]
        if depth < NESTED_MAX:
            kinds += ["record", "array", "map"] * 2
        if union:
            kinds += ["union", "nullable", "nullable"]
        kind = self.dice.choice(kinds)
        if kind in PRIMITIVES:
            return kind
        return getattr(self, f"_{kind}")(depth)

    def _record(self, depth):
        fields = [
            {"name": f"f{n}", "type": self.type(depth + 1)} for n in range(self.dice.randrange(5))
        ]
        return {"type": "record", "name": self.name(), "fields": fields}

    def _enum(self, _):
        return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]}

    def _fixed(self, _):
        return {"type": "fixed", "name": self.name(), "size": self.dice.choice([0, 1, 16, 100])}

    def _date(self, _):
        return {"type": "int", "logicalType": "date"}

    def _millis(self, _):
        return {"type": "long", "logicalType": "timestamp-millis"}

    def _micros(self, _):
        return {"type": "long", "logicalType": "local-timestamp-micros"}

    def _decimal(self, _):
        return {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}

    def _digits(self, _):
        return {
            "type": "fixed", "name": self.name(), "size": 12, "logicalType": "decimal",
            "precision": 18, "scale": 2,
        }  # fmt: skip

    def _array(self, depth):
        return {"type": "array", "items": self.type(depth + 1)}

    def _map(self, depth):
        return {"type": "map", "values": self.type(depth + 1)}

    def _nullable(self, depth):
        found = "null"
        while found == "null":
            found = self.type(depth, union=False)
        return self.dice.choice([["null", found], [found, "null"]])

    def _union(self, _):
        return self.dice.sample(UNION, self.dice.randrange(1, 5))

    # ---- values: (branch, value) in unions

    def value(self, of):
        if isinstance(of, list):
            branch = self.dice.randrange(len(of))
            return branch, self.value(of[branch])
        if isinstance(of, str):
            return self._plain(of)
        if of["type"] == "record":
            return {each["name"]: self.value(each["type"]) for each in of["fields"]}
        if of["type"] == "array":
            return [self.value(of["items"]) for _ in range(self.dice.choice([0, 1, 2, 5]))]
        if of["type"] == "map":
            keys = self.dice.sample(LETTERS, self.dice.choice([0, 1, 3]))
            return {key: self.value(of["values"]) for key in keys}
        return self._logical(of)

    def _logical(self, of):
        dice = self.dice
        match of.get("logicalType"):
            case "date":
                return date(1970, 1, 1) + timedelta(days=dice.randrange(-(10**5), 10**5))
            case "timestamp-millis":
                since = timedelta(milliseconds=dice.randrange(-(10**12), 10**12))
                return datetime(1970, 1, 1, tzinfo=UTC) + since
            case "local-timestamp-micros":
                since = timedelta(microseconds=dice.randrange(-(10**15), 10**15))
                return datetime(1970, 1, 1) + since  # noqa: DTZ001 (a local time)
            case "decimal":
                digits = dice.randrange(1, of["precision"] + 1)
                return Decimal(dice.randrange(1 - 10**digits, 10**digits)).scaleb(-of["scale"])
        return dice.choice(of["symbols"]) if "symbols" in of else dice.randbytes(of["size"])

    def _plain(self, kind):
        dice = self.dice
        single = struct.unpack("<f", struct.pack("<f", dice.uniform(-9, 9)))[0]
        return {
            "null": None,
            "boolean": dice.random() < 0.5,
            "int": dice.choice([0, -1, 2**31 - 1, -(2**31), dice.randrange(-999, 999)]),
            "long": dice.choice([0, -1, 2**63 - 1, -(2**63), dice.randrange(-(10**6), 10**6)]),
            "float": single,
            "double": dice.uniform(-9, 9),
            "bytes": dice.randbytes(dice.randrange(9)),
            "string": "".join(dice.choices(LETTERS, k=dice.randrange(9))),
        }[kind]


def encoded(schema, values):
    """The bytes of values, by fastavro."""
    parsed = fastavro.parse_schema(schema)
    found = []
    for value in values:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed, for_fastavro(schema, value))
        found.append(written.getvalue())
    return found


def for_fastavro(of, value):
    """A value with the names of its branches."""
    if isinstance(of, list):
        branch = of[value[0]]
        inner = for_fastavro(branch, value[1])
        is_named = len(of) > 1 and branch != "null" and "logicalType" not in branch
        name = branch if isinstance(branch, str) else branch.get("name", branch["type"])
        return (name, inner) if is_named else inner
    return _with_parts(of, value, for_fastavro)


def as_column(of, value):
    """A value as pyarrow returns it."""
    if not isinstance(of, list):
        value = _with_parts(of, value, as_column)
        return list(value.items()) if isinstance(of, dict) and of["type"] == "map" else value
    branch, inner = value
    present = [each for each in of if each != "null"]
    if of[branch] == "null":
        return None
    found = as_column(of[branch], inner)
    kinds = sorted(map(str, present))
    if len(present) == 1 or kinds in (["int", "long"], ["double", "float"]):
        return found
    member = sum(each != "null" for each in of[:branch])
    return {f"member{n}": found if n == member else None for n in range(len(present))}


def _with_parts(of, value, change):
    kind = of if isinstance(of, str) else of["type"]
    if kind == "record":
        fields = {each["name"]: each["type"] for each in of["fields"]}
        return {name: change(field, value[name]) for name, field in fields.items()}
    if kind == "array":
        return [change(of["items"], each) for each in value]
    if kind == "map":
        return {key: change(of["values"], each) for key, each in value.items()}
    return value
