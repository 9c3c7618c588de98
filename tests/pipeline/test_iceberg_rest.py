"""The Iceberg sink with a REST catalog whose answers get lost, and which is busy at times.

The server speaks the published REST API; its tables are those of pyiceberg's SQL catalog.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, StagedTable

from sparkraft.pipeline import iceberg_upkeep
from sparkraft.pipeline.iceberg import IcebergSink
from tests.pipeline.test_table_files import put
from tests.pipeline.test_table_merge import numbers, upsert

BUSY, UNKNOWN = 503, 504


class Catalog(BaseHTTPRequestHandler):
    """Namespaces and tables; a commit may fail before or after it is made."""

    tables: ClassVar[Any]
    faults: ClassVar[list[tuple[str, int]]]
    lock: ClassVar[Any]

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def answer(self, code: int, document: Any = None) -> None:
        body = b"" if document is None else document.encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, code: int, kind: str) -> None:
        self.answer(code, json.dumps({"error": {"message": kind, "type": kind, "code": code}}))

    def do_GET(self) -> None:
        if self.path.startswith("/v1/config"):
            self.answer(200, json.dumps({"defaults": {}, "overrides": {}}))
        elif name := re.fullmatch(r"/v1/namespaces/(\w+)/tables/(\w+)(\?.*)?", self.path):
            try:
                self.answer(200, described(self.tables.load_table(f"{name[1]}.{name[2]}")))
            except NoSuchTableError:
                self.refuse(404, "NoSuchTableException")
        else:
            self.answer(200, json.dumps({"namespace": ["ns"], "properties": {}}))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/namespaces":
            self.tables.create_namespace_if_not_exists("ns")
            self.answer(200, json.dumps({"namespace": ["ns"], "properties": {}}))
        elif self.path == "/v1/namespaces/ns/tables":
            wanted = json.loads(body)
            assert wanted["stage-create"]
            schema = Schema.model_validate(wanted["schema"])
            staged = self.tables._create_staged_table(f"ns.{wanted['name']}", schema)
            self.answer(200, described(staged))
        else:
            self.commit(CommitTableRequest.model_validate_json(body))

    def commit(self, wanted: CommitTableRequest) -> None:
        when, code = self.faults.pop(0) if self.faults else ("", 0)
        if when == "before":
            self.refuse(code, "Fault")
            return
        name = ("ns", wanted.identifier.name)
        table = StagedTable(name, None, "", self.tables._load_file_io(), self.tables)  # type: ignore[arg-type]
        try:
            with self.lock:
                done = self.tables.commit_table(table, wanted.requirements, wanted.updates)
        except CommitFailedException:
            self.refuse(409, "CommitFailedException")
            return
        if when == "after":
            self.refuse(code, "Fault")
        else:
            self.answer(200, done.model_dump_json())


def described(table: Any) -> str:
    location = table.metadata_location
    return TableResponse(
        **{"metadata-location": location, "metadata": table.metadata}
    ).model_dump_json()


@pytest.fixture
def server(tmp_path):
    Catalog.tables = SqlCatalog(
        "back", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/wh"
    )
    Catalog.faults = []
    Catalog.lock = threading.Lock()
    made = ThreadingHTTPServer(("127.0.0.1", 0), Catalog)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def sink_of(server, *keys, **more):
    uri = f"http://127.0.0.1:{server.server_port}"
    return IcebergSink("", "ns.t", "fail", {"type": "rest", "uri": uri}, keys=keys, **more)


FAULTS = [
    ("after", UNKNOWN),
    ("before", BUSY),
    ("before", UNKNOWN),
    ("after", 500),
    ("before", 429),
]


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_each_batch_is_stored_once(server, keys):
    write = upsert if keys else put
    sink = sink_of(server, *keys)
    Catalog.faults[:] = FAULTS[:2]  # the table's creation
    for number in range(4):
        write(sink, numbers([number, number + 1], f"b{number}-"), number)
        Catalog.faults[:] = FAULTS
    rows = sorted((row["id"], row["name"]) for row in sink.loaded().scan().to_arrow().to_pylist())
    every = [(n + at, f"b{n}-{n + at}") for n in range(4) for at in (0, 1)]
    assert rows == (sorted(dict(every).items()) if keys else sorted(every))
    assert sink.has("q", 3)


def test_partitions_and_upkeep(server):
    sink = sink_of(server, "id", partition_by=("part",))
    for batch in range(3):
        rows = pa.table({"id": [batch, batch + 1], "part": ["a", "b"]})
        upsert(sink, rows, batch)
    Catalog.faults[:] = FAULTS
    done = iceberg_upkeep.keep_up(sink, target_bytes=1 << 20, retain_hours=1)
    assert done.before > done.after == 2
    rows = {row["id"]: row["part"] for row in sink.loaded().scan().to_arrow().to_pylist()}
    assert rows == {0: "a", 1: "a", 2: "a", 3: "b"}
