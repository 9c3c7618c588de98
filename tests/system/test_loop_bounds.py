"""Every bound of a piece of work on the event loop has a row of `./bench loop bounds`."""

import ast
import re
from pathlib import Path

from benchmarks.loop_bounds import COSTS
from sparkraft.base.loop_work import LOOP_WORK_MAX

SOURCE = Path(__file__).parents[2] / "src" / "sparkraft"
FIELDS = [f"base.loop_work.LOOP_WORK_MAX.{field}" for field in LOOP_WORK_MAX._fields]

SOUNDS_LIKE_A_BOUND = re.compile(
    r"(AT_ONCE|CHUNK|SLICE|PIECE|STEP|PER_ITERATION|PER_PAUSE|PER_STEP|BETWEEN_YIELDS)"
)

NOT_ON_THE_LOOP = {
    "cli.": "a process of its own",
    "client.": "a client's own loop",
    "console.": "a process of its own",
    "pipeline.": "a process of its own",
    "simulation.": "no product",
    "testing.": "no product",
    "protocol.compiler._SLICED_DECODERS": "compiled functions",
    "server.config_pieces.PIECES_MAX": "encoded configs that are kept",
    "raft.epoch_guard.RESERVED_STEP_MAX": "epochs",
    "raft.epoch_guard.OUTSIDER_STEP_MAX": "epochs",
    "records.compression._CHUNK": "calls that release the interpreter",
    "records.codecs_arrow._CHUNK": "calls that release the interpreter",
    "coordinator.transaction.shard.STEP_MS": "a time",
    "server.loop_monitor.LONG_PIECE_MS": "what is logged",
    "server.loop_turns.SLICE_MS_MAX": "a time",
    "server.broker.folder_queue.SLICES_PER_BATCH": "jobs that a thread takes together",
    "server.broker.log_dir_moves.STEPS_BEFORE_SWAP_MAX": "each step runs by itself",
    "server.coordinator.shard_log.LOAD_STEP_BYTES": "read at a time, loaded in steps",
    "server.coordinator.coordinator_service.LOADS_AT_ONCE_MAX": "partitions, loaded in steps",
    "server.network.frames.SMALL_CHUNK_BYTES": "what is copied",
    "server.network.sending.PIECE_BYTES": "handed to a transport that takes one at a time",
    "storage.segment.SCAN_CHUNK": "read at a time",
    "storage.segment._FIRST_SCAN_CHUNK": "read at a time",
    "storage.snapshot_files.READ_CHUNK": "read at a time",
    "zookeeper.controller.steps.PIECE_MAX": "chances to interrupt; a slice ends by time",
}
"""Constants and packages that sound like bounds of work on a node's loop; why they are none."""


def constants() -> list[tuple[str, str]]:
    """(`module.NAME`, annotation) of every constant of a module."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.append((f"{module}.{node.target.id}", ast.unparse(node.annotation)))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found.append((f"{module}.{node.targets[0].id}", ""))
    return [(name, kind) for name, kind in found if name.rpartition(".")[2].isupper()]


def test_every_bound_is_measured():
    bounds = [name for name, annotation in constants() if "LoopBound" in annotation]
    assert sorted([*bounds, *FIELDS]) == sorted(COSTS)
    assert len(bounds) > 30


def test_a_constant_that_sounds_like_a_bound_is_one():
    forgotten = [
        name
        for name, annotation in constants()
        if SOUNDS_LIKE_A_BOUND.search(name.rpartition(".")[2])
        and "LoopBound" not in annotation
        and not any(name == known or name.startswith(known) for known in NOT_ON_THE_LOOP)
    ]
    assert forgotten == []


def test_no_exception_is_out_of_date():
    names = [name for name, _ in constants()]
    assert [k for k in NOT_ON_THE_LOOP if not any(n.startswith(k) for n in names)] == []
