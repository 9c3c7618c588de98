"""Delta tables with features that deltalake does not create, made by their log (PROTOCOL.md)."""

import json
import struct
import uuid
import zlib
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

_READER_FEATURES = frozenset({"deletionVectors", "columnMapping", "timestampNtz"})
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def field(name, kind="long", *, nullable=True, **metadata):
    """A column; `metadata` has Delta's keys."""
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def mapped(column, number):
    """The column with a field id and the physical name `col-` and that number."""
    known = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {**column, "metadata": column["metadata"] | known}


def invariant(sql):
    """Metadata of a column with an invariant."""
    return {"delta.invariants": json.dumps({"expression": {"expression": sql}})}


def new_table(path, fields, *, features=(), partition_by=(), **configuration):
    """Create a table without rows; return its path as a text."""
    read = sorted(_READER_FEATURES.intersection(features))
    protocol = {
        "minReaderVersion": 3 if read else 1,
        "minWriterVersion": 7,
        "writerFeatures": ["appendOnly", "invariants", *features],
    }
    if read:
        protocol["readerFeatures"] = read
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": list(partition_by),
        "configuration": configuration,
        "createdTime": 0,
    }
    _commit(Path(path), 0, {"protocol": protocol}, {"metaData": metadata})
    return str(path)


def delete_rows(path, file, rows, *, inline=False):
    """Delete rows of a file, which has no deletion vector yet, as other writers do.

    Args:
        path: of the table.
        file: name of a file of it.
        rows: their places in the file, below 65536.
        inline: whether the log has the deletion vector, not a file.
    """
    table = DeltaTable(path)
    known = {each["path"]: each for each in pa.table(table.get_add_actions()).to_pylist()}[file]
    common = {"path": file, "size": known["size_bytes"], "partitionValues": {}, "dataChange": True}
    add = {
        **common,
        "modificationTime": 0,
        "stats": json.dumps({"numRecords": known["num_records"], "tightBounds": False}),
        "deletionVector": _deletion_vector(Path(path), sorted(rows), inline=inline),
    }
    remove = {**common, "deletionTimestamp": 0, "extendedFileMetadata": True}
    information = {"timestamp": 0, "operation": "DELETE"}
    _commit(
        Path(path), table.version() + 1, {"remove": remove}, {"add": add},
        {"commitInfo": information},
    )  # fmt: skip


def rows_of(path, by="id"):
    """The rows, also of tables with deletion vectors."""
    builder = QueryBuilder().register("t", DeltaTable(str(path)))
    return pa.table(builder.execute(f'SELECT * FROM t ORDER BY "{by}"').read_all()).to_pylist()


def _commit(path, version, *actions):
    log = path / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(each) + "\n" for each in actions)
    (log / f"{version:020d}.json").write_text(text)


def _deletion_vector(path, rows, *, inline):
    container = struct.pack(f"<{len(rows)}H", *rows)
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + container
    content = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    common = {"sizeInBytes": len(content), "cardinality": len(rows)}
    if inline:
        padded = content + bytes(-len(content) % 4)
        return {"storageType": "i", "pathOrInlineDv": _z85(padded), **common}
    name = uuid.uuid4()
    framed = struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))
    (path / f"deletion_vector_{name}.bin").write_bytes(b"\x01" + framed)
    return {"storageType": "u", "pathOrInlineDv": _z85(name.bytes), "offset": 1, **common}


def _z85(content):
    text = ""
    for first in range(0, len(content), 4):
        number = int.from_bytes(content[first : first + 4], "big")
        text += "".join(_DIGITS[number // 85**power % 85] for power in range(4, -1, -1))
    return text
