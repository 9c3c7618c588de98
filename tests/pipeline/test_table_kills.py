"""Committers of tables are killed at steps and moments by seed; each batch is in the table once."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sparkraft.pipeline.iceberg import IcebergSink

NURSERY = '''
"""Start committers by fork, which imports once, and kill each of them until `kills` have died."""
import os, random, signal, sys, time
import pyarrow as pa
from deltalake import DeltaTable
from sparkraft.pipeline import table_files, table_merge, table_rewrite
from sparkraft.pipeline.delta import DeltaSink
from sparkraft.pipeline.iceberg import IcebergSink
from tests.pipeline.test_table_files import put
from tests.pipeline.test_table_merge import upsert
from tests.pipeline.test_table_kills import KINDS, rows_of

folder, kills, batches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def counted(owner, name, left):
    """Die before or after the step that makes `left` zero."""
    real = getattr(owner, name)
    def step(*args, **options):
        for when in range(2):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if when == 0:
                found = real(*args, **options)
        return found
    setattr(owner, name, step)

def commit_all(kind, table):
    path = f"{folder}/{kind}"
    keys = ("id",) if "keyed" in kind else ()
    sink = DeltaSink(f"{path}/{table}", keys)
    if "iceberg" in kind:
        sink = IcebergSink(f"{path}/{table}", "ns.t", "fail", {}, keys=keys)
    for batch in range(batches):
        if not sink.has("q", batch):
            rows = rows_of(batch)
            upsert(sink, rows, batch) if keys else put(sink, rows, batch)

def forked(kind, table, dice=None):
    """One life of a committer; return its exit code."""
    by_step = dice and dice.random() < 0.5
    step, seconds = (dice.randint(1, 30), dice.uniform(0, 0.15)) if dice else (0, None)
    child = os.fork()
    if not child:
        if by_step:
            left = [step]
            for owner, name in STEPS:
                counted(owner, name, left)
        commit_all(kind, table)
        os._exit(0)
    if seconds is not None and not by_step:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

STEPS = [
    (DeltaSink, "_prepared"), (DeltaTable, "create_write_transaction"),
    (table_files.FileWriter, "close"), (table_rewrite.RewriteTask, "run"),
    (table_merge.Merge, "delete_keys"), (IcebergSink, "_write"), (IcebergSink, "_create"),
]
for kind in KINDS:
    dice, died, table = random.Random(kind), 0, 0
    while died < kills:
        code = forked(kind, table, dice)
        assert code in (0, -signal.SIGKILL), code
        died += code < 0
        # A table that has all batches is followed by a new one.
        table += code == 0
    assert forked(kind, table) == 0
    print(table + 1)
'''

KINDS = ("delta", "delta keyed", "iceberg", "iceberg keyed")


def rows_of(batch):
    """The rows of a batch, some of which delete others."""
    import pyarrow as pa

    dice = random.Random(batch)
    ids = dice.sample(range(100), 10)
    gone = [dice.random() < 0.2 for _ in ids]
    return pa.table({"id": ids, "batch": [batch] * 10, "tombstone": gone})


def expected_rows(batches, *, keyed):
    rows = [each for batch in range(batches) for each in rows_of(batch).to_pylist()]
    if not keyed:
        return sorted((row["id"], row["batch"]) for row in rows)
    found = {}
    for row in rows:
        found.pop(row["id"], None)
        if not row["tombstone"]:
            found[row["id"]] = row["batch"]
    return sorted(found.items())


@pytest.mark.parametrize(
    ("kills", "batches"),
    [(5, 10), pytest.param(50, 40, marks=pytest.mark.long)],  # the few kills stay in ./test
)
def test_a_killed_committer_has_each_batch_once(tmp_path: Path, kills: int, batches: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NURSERY, str(tmp_path), str(kills), str(batches)],
        capture_output=True, text=True, check=False, env=os.environ, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for kind, tables in zip(KINDS, map(int, done.stdout.split()), strict=True):
        for table in range(tables):
            rows = stored(kind, f"{tmp_path}/{kind}/{table}")
            found = sorted((row["id"], row["batch"]) for row in rows)
            assert found == expected_rows(batches, keyed="keyed" in kind), (kind, table)


def stored(kind: str, path: str) -> Any:
    if "delta" in kind:
        return DeltaTable(path).to_pyarrow_table().to_pylist()
    return IcebergSink(path, "ns.t", "fail", {}).loaded().scan().to_arrow().to_pylist()
