"""Names of a Delta table's columns in its files and its log (column mapping).

    the table, batches, keys, rules     names, which an ALTER TABLE can change
    its Parquet files, its log          physical names, which stay; files also have field ids

Source: PROTOCOL.md of Delta, "Column Mapping". Writers use physical names and field ids in both
modes, `name` and `id`, so files are read by physical names.

Invariants:
    * Physical names are in files and in the log's actions, and nowhere else.

Not here: types and rows that do not fit (`table_fit`), files (`table_files`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

_NAME: Final = "delta.columnMapping.physicalName"
_ID: Final = "delta.columnMapping.id"
_MODE: Final = "delta.columnMapping.mode"


@dataclass(frozen=True, slots=True)
class Renamed:
    """Another name for a column or a field, and its field id in files."""

    name: str
    field_id: int | None
    inside: Names


Names = dict[str, Renamed]
"""Names of columns, or of the fields of a struct, or of the elements' fields of a list.

A map has the names `key` and `value`. Missing names stay.
"""


def names_of(table: Any) -> Names:
    """The physical names of a table of deltalake; empty without column mapping."""
    if table.metadata().configuration.get(_MODE, "none") == "none":
        return {}
    return _inside(json.loads(table.schema().to_json()))


def _inside(kind: Any) -> Names:
    if not isinstance(kind, dict):
        return {}
    if kind["type"] == "struct":
        return {each["name"]: _of_field(each) for each in kind["fields"]}
    if kind["type"] == "array":
        return _inside(kind["elementType"])
    parts = {"key": kind["keyType"], "value": kind["valueType"]}
    return {name: Renamed(name, None, _inside(each)) for name, each in parts.items()}


def _of_field(field: Mapping[str, Any]) -> Renamed:
    known = field["metadata"]
    return Renamed(known.get(_NAME, field["name"]), known.get(_ID), _inside(field["type"]))


def inverse(names: Names) -> Names:
    """The table's names of physical ones."""
    return {each.name: Renamed(name, None, inverse(each.inside)) for name, each in names.items()}


def renamed(rows: pa.Table, names: Names) -> pa.Table:
    """The same values under other names, also inside of structs, lists and maps."""
    import pyarrow as pa

    if not names:
        return rows
    schema = pa.schema([_field(each, names) for each in rows.schema])
    # A cast would look for the fields of structs by their names; a message has only their order.
    batches = [pa.ipc.read_record_batch(each.serialize(), schema) for each in rows.to_batches()]
    return pa.Table.from_batches(batches, schema)


def renamed_keys(values: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """The same values under other names of columns."""
    return {name_in(names, name): value for name, value in values.items()}


def name_in(names: Names, name: str) -> str:
    """The other name of a column."""
    return names[name].name if name in names else name


def names_in(names: Names, wanted: Iterable[str]) -> list[str]:
    """The other names of columns."""
    return [name_in(names, name) for name in wanted]


def _field(field: pa.Field[Any], names: Names) -> pa.Field[Any]:
    found = names.get(field.name)
    if found is None:
        return field
    made = field.with_type(_type(field.type, found.inside)).with_name(found.name)
    made = made.remove_metadata()
    return made if found.field_id is None else made.with_metadata(_parquet_id(found.field_id))


def _parquet_id(field_id: int) -> dict[bytes | str, bytes | str]:
    return {"PARQUET:field_id": str(field_id)}


def _type(kind: pa.DataType, names: Names) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([_field(kind.field(n), names) for n in range(kind.num_fields)])
    if pa.types.is_map(kind):
        key, item = names.get("key"), names.get("value")
        fields: Any = (
            kind.key_field.with_type(_type(kind.key_type, key.inside if key else {})),
            kind.item_field.with_type(_type(kind.item_type, item.inside if item else {})),
        )
        return pa.map_(*fields)
    if pa.types.is_large_list(kind):
        return pa.large_list(_values(kind, names))
    if pa.types.is_list(kind):
        return pa.list_(_values(kind, names))
    return kind


def _values(kind: Any, names: Names) -> pa.Field[Any]:
    field: pa.Field[Any] = kind.value_field
    return field.with_type(_type(field.type, names))
