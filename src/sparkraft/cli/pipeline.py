"""`pipeline …`: pipelines described in one file, on Spark. Ours; Kafka has no such tool."""

from __future__ import annotations

import signal
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparkraft.base.errors import InputError
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options, Values, key_values
from sparkraft.cli.past_time import past_time
from sparkraft.cli.session import print_json, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType
    from typing import Any

    from sparkraft.pipeline.progress import Progress
    from sparkraft.pipeline.spec import Pipeline
    from sparkraft.pipeline.upkeep import Upkeep

_ACTIVE: Final = frozenset({"starting", "running", "paused"})
_WATCH_SECONDS: Final = 0.5
_SHOWN_FIRST: Final = 10
"""Batches that a watch prints of those that ended before it."""

_STOP_SECONDS_MAX: Final = 120.0
"""How long `stop` waits: a pipeline finishes its batch first."""


def main(argv: list[str]) -> int:
    """Execute one action; the exit code is 0 if it succeeded."""
    if not argv or argv[0] not in _ACTIONS:
        if argv and argv[0] in {"-h", "--help"}:
            _print_help()
            return 0
        raise UsageError(f"expected an action: sparkraft pipeline {'|'.join(_ACTIONS)}")
    action, about = _ACTIONS[argv[0]]
    return action(Options(f"pipeline {argv[0]}", f"{about[0].upper()}{about[1:]}."), argv[1:])


def _print_help() -> None:
    print(
        "usage: sparkraft pipeline ACTION [options]     sparkraft pipeline ACTION --help\n\n"
        "Runs pipelines on Spark that a file describes (docs/pipelines.md).\n\nactions:"
    )
    for name, (_, about) in _ACTIONS.items():
        print(f"  {name:10}{about}")


def _file(options: Options) -> None:
    options.add_argument("file", metavar="FILE", help="the pipeline file (TOML)")
    options.values("--set", about="a value for ${KEY} in FILE; repeatable", metavar="KEY=VALUE")


def _needs_spark() -> None:
    from importlib.util import find_spec

    for needed in ("pyspark", "pyarrow", "numpy", "deltalake"):
        if find_spec(needed) is None:
            raise CommandError(f"{needed} is not installed: pip install 'sparkraft[pipeline]'")


@contextmanager
def _mistakes(file: str) -> Iterator[None]:
    """Turn errors of pipelines into sentences; those of the file begin with its name."""
    from sparkraft.pipeline.places import OptionError
    from sparkraft.pipeline.run import PipelineError
    from sparkraft.pipeline.session import NoJava

    try:
        yield
    except (InputError, OptionError) as error:
        said = str(error)
        raise CommandError(said if said.startswith(f"{file}: ") else f"{file}: {said}") from error
    except (NoJava, PipelineError) as error:
        raise CommandError(str(error)) from error


def _load(values: Values) -> Pipeline:
    from sparkraft.pipeline import spec

    return spec.load(Path(values.file), key_values(values.set, "--set"))


def _run(options: Options, argv: Sequence[str]) -> int:
    _file(options)
    options.value(
        "--master",
        about="Spark master, or sc://HOST of Spark Connect (default: the file's, else local[*])",
    )
    options.flag("--once", "process the records that exist now, then stop")
    options.flag("--check", "look for mistakes in FILE; process no records")
    values = options.parse(argv)
    _needs_spark()
    from dataclasses import replace

    from sparkraft.pipeline import connect
    from sparkraft.pipeline import run as running

    with _mistakes(values.file):
        pipeline = _load(values)
        pipeline = replace(pipeline, master=values.master or pipeline.master)
        if values.once:
            pipeline = replace(pipeline, trigger="available now")
        if values.check:
            for note in running.check_with_spark(pipeline):
                warn(f"note: {note}")
            warn(f"{values.file} is fine")
            return 0
        master = connect.shown(pipeline.master)
        what = "connecting to" if connect.is_connect(master) else "starting Spark on"
        warn(f"{pipeline.name}: {what} {master}")
        running.run(pipeline, on_progress=_show, should_stop=_stopper())
    return 0


def _show(progress: Progress) -> None:
    warn(str(progress))


class _stopper:  # noqa: N801 (used as a function)
    """Whether a signal asked to stop."""

    def __init__(self) -> None:
        """Listen for SIGINT and SIGTERM."""
        self._asked = False
        for wanted in (signal.SIGINT, signal.SIGTERM):
            signal.signal(wanted, self._on_signal)

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        self._asked = True

    def __call__(self) -> bool:
        """Asked?"""
        return self._asked


def _test(options: Options, argv: Sequence[str]) -> int:
    _file(options)
    values = options.parse(argv)
    _needs_spark()
    from sparkraft.pipeline import run as running

    with _mistakes(values.file):
        pipeline = _load(values)
        if not pipeline.cases:
            raise CommandError(f"{values.file} has no [[test]]")
        failed = 0
        for name, difference in running.test(pipeline):
            failed += difference is not None
            print(f"{'failed' if difference else 'passed'}  {name}")
            for line in (difference or "").splitlines():
                print(f"        {line}")
    print(f"{len(pipeline.cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _list(options: Options, argv: Sequence[str]) -> int:
    options.add_argument(
        "folder", nargs="?", default=".", help="the folder with the checkpoints (default: .)"
    )
    options.output()
    values = options.parse(argv)
    from sparkraft.pipeline import status

    found = list(status.all_below(Path(values.folder)))
    if values.output == "json":
        print_json(found)
        return 0
    print(f"{'NAME':20} {'STATE':9} {'BATCH':>7} {'RECORDS':>10} {'LAG':>10} {'DAMAGED':>8}")
    for each in found:
        print(_line(each))
    return 0


def _line(found: dict[str, Any]) -> str:
    figures = [found.get(name) for name in ("batch", "records", "lag", "damaged")]
    batch, records, lag, damaged = ("-" if each is None else str(each) for each in figures)
    return (
        f"{found.get('name', '-'):20} {found.get('state', '-'):9} {batch:>7} {records:>10} "
        f"{lag:>10} {damaged:>8}"
    )


def _status(options: Options, argv: Sequence[str]) -> int:
    _file(options)
    options.flag("--watch", "print a line for each batch until the pipeline stops")
    values = options.parse(argv)
    from sparkraft.pipeline import status

    with _mistakes(values.file):
        pipeline = _load_local(values)
    found = status.now(pipeline.checkpoint)
    if not found:
        raise CommandError(f"{pipeline.name} has not run yet: nothing beside {pipeline.checkpoint}")
    if values.watch:
        return _watch(pipeline.checkpoint)
    print_json(found)
    return 0


def _watch(checkpoint: str) -> int:
    from sparkraft.pipeline import batch_log, status

    reader = batch_log.Reader(checkpoint)
    batches = reader.new()[-_SHOWN_FIRST:]
    while True:
        for batch in batches:
            print(_batch_line(batch), flush=True)
        found = status.now(checkpoint)
        batches = reader.new()
        if not batches and found.get("state") not in _ACTIVE:
            print(
                f"{found.get('name')} is {found.get('state')}: {found.get('error') or 'no error'}"
            )
            return 0
        if not batches:
            time.sleep(_WATCH_SECONDS)


def _batch_line(batch: dict[str, Any]) -> str:
    figures = "  ".join(
        f"{name} {batch.get(name)}"
        for name in ("records", "lag", "lag_seconds", "late", "damaged", "misfits", "ignored")
    )
    durations = batch.get("durations_ms", {})
    longest = sorted(durations.items(), key=lambda each: -each[1])
    steps = ", ".join(f"{name} {ms} ms" for name, ms in longest if name != "triggerExecution")
    return (
        f"{batch.get('started')}  batch {batch.get('batch')}  {batch.get('seconds')} s  {figures}  "
        f"({steps})"
    )


def _load_local(values: Values) -> Pipeline:
    from sparkraft.pipeline import status
    from sparkraft.pipeline.spec import SpecError

    pipeline = _load(values)
    if not status.is_local(pipeline.checkpoint):
        raise SpecError(f"checkpoint {pipeline.checkpoint} is not a folder of this machine")
    return pipeline


def _stop(options: Options, argv: Sequence[str]) -> int:
    _file(options)
    values = options.parse(argv)
    from sparkraft.pipeline import status

    with _mistakes(values.file):
        pipeline = _load_local(values)
    try:
        stopped = status.stop(pipeline.checkpoint, seconds_max=_STOP_SECONDS_MAX)
    except ProcessLookupError:
        raise CommandError(f"{pipeline.name} is not running") from None
    if not stopped:
        raise CommandError(f"{pipeline.name} did not stop within {_STOP_SECONDS_MAX:.0f} s")
    warn(f"{pipeline.name} is stopped")
    return 0


def _pause(options: Options, argv: Sequence[str]) -> int:
    return _set_paused(options, argv, paused=True)


def _resume(options: Options, argv: Sequence[str]) -> int:
    return _set_paused(options, argv, paused=False)


def _set_paused(options: Options, argv: Sequence[str], *, paused: bool) -> int:
    _file(options)
    values = options.parse(argv)
    from sparkraft.pipeline import status

    with _mistakes(values.file):
        pipeline = _load_local(values)
    if not status.runs(pipeline.checkpoint):
        raise CommandError(f"{pipeline.name} is not running")
    status.pause(pipeline.checkpoint, paused=paused)
    warn(f"{pipeline.name} {'pauses after its batch' if paused else 'continues'}")
    return 0


def _reset(options: Options, argv: Sequence[str]) -> int:
    _file(options)
    options.flag("--execute", "delete it; without this option only print what would be deleted")
    options.value(
        "--replay",
        type=int,
        about="keep the checkpoint; the next run writes this lost batch again",
    )
    values = options.parse(argv)
    import shutil

    from sparkraft.pipeline import batch_log, status

    with _mistakes(values.file):
        pipeline = _load_local(values)
    checkpoint = pipeline.checkpoint
    if status.runs(checkpoint):
        raise CommandError(f"{pipeline.name} is running; stop it first")
    if values.replay is not None:
        return _replay(pipeline, values.replay)
    if not Path(checkpoint).is_dir():
        raise CommandError(f"checkpoint {checkpoint} does not exist")
    if not values.execute:
        warn(
            f"would delete {checkpoint}. {pipeline.name} would then begin at its startingOffsets, "
            "and add the rows that it reads again to sinks without keys. Delete it with --execute"
        )
        return 0
    shutil.rmtree(checkpoint)
    status.forget(checkpoint)
    batch_log.forget(checkpoint)
    warn(f"deleted {checkpoint}")
    return 0


def _replay(pipeline: Pipeline, number: int) -> int:
    """Let a batch be written again by the sinks that have lost a part of it."""
    _needs_spark()
    from sparkraft.pipeline import sinks
    from sparkraft.pipeline.exactly_once import Committer
    from sparkraft.pipeline.places import OptionError

    reasons = [f"{pipeline.name} has no sink with delivery = exactly_once"]
    is_replayed = False
    for options in sinks.transactional_options(pipeline):
        committer = Committer.of(options)
        try:
            _show_replay(number, committer.replay(number))
            is_replayed = True
        except OptionError as error:
            reasons.append(str(error))
    if not is_replayed:
        raise CommandError("; ".join(reasons[1:] or reasons))
    return 0


def _recover(options: Options, argv: Sequence[str]) -> int:
    options.value("--bootstrap-server", about="the cluster of the topics", required=True)
    options.value("--transactional-id-prefix", about="the prefix of the query", required=True)
    options.value("--replay", about="the next run writes this lost batch again", type=int)
    values = options.parse(argv)
    _needs_spark()
    from sparkraft.pipeline.decisions import LostTransactionsError
    from sparkraft.pipeline.exactly_once import Committer
    from sparkraft.pipeline.options import sink_options
    from sparkraft.pipeline.places import OptionError

    prefix = values.transactional_id_prefix
    given = {
        "kafka.bootstrap.servers": values.bootstrap_server,
        "transactionalIdPrefix": prefix,
    }
    try:
        committer = Committer.of(sink_options(given))
        if values.replay is not None:
            _show_replay(values.replay, committer.replay(values.replay))
            return 0
        done = committer.recover()
    except (OptionError, LostTransactionsError) as error:
        raise CommandError(str(error)) from error
    batch = "no batch is decided" if done.last is None else f"last decided batch {done.last.number}"
    print(f"{prefix}: {batch}")
    for name, ids in (("committed", done.committed), ("aborted", done.aborted)):
        print(f"{name}: {', '.join(ids) or 'none'}")
    return 0


def _show_replay(number: int, visible: Sequence[str]) -> None:
    print(f"batch {number} will be written again by the next run")
    if visible:
        print(f"records of these transactions will be visible twice: {', '.join(visible)}")


def _backfill(options: Options, argv: Sequence[str]) -> int:
    _file(options)
    options.value("--from", about="first time: ISO, or a span such as 2h before now", required=True)
    options.value("--to", about="time after the last one", required=True)
    values = options.parse(argv)
    start, end = past_time(vars(values)["from"], "--from"), past_time(values.to, "--to")
    if start >= end:
        raise UsageError("--from is not before --to")
    _needs_spark()
    from sparkraft.pipeline import run as running

    with _mistakes(values.file):
        pipeline = _load(values)
        records = running.run_backfill(pipeline, start_ms=start, end_ms=end)
    warn(f"{pipeline.name}: {records:,} records processed")
    return 0


def _audit(options: Options, argv: Sequence[str]) -> int:
    options.value("--bootstrap-server", about="the cluster of the topics", required=True)
    options.value("--topic", about="topics, separated by commas", required=True)
    options.value("--master", default="local[*]", about="of Spark (default: local[*])")
    values = options.parse(argv)
    _needs_spark()
    from sparkraft.pipeline import connect, replica_audit
    from sparkraft.pipeline.options import source_options
    from sparkraft.pipeline.session import session

    if connect.is_connect(values.master):
        raise UsageError("audit does not work over Spark Connect: name a Spark master")

    given = {"kafka.bootstrap.servers": values.bootstrap_server, "subscribe": values.topic}
    with _mistakes("--bootstrap-server"), tempfile.TemporaryDirectory(prefix="sparkraft-") as work:
        client = source_options(given, streaming=False).client
        tasks = replica_audit.plan(client, [each.strip() for each in values.topic.split(",")])
        log = Path(work) / "spark.log"
        spark = session("audit", master=values.master, work=Path(work) / "work", log=log)
        try:
            rows = replica_audit.differences(spark, tasks).orderBy("topic", "partition", "offset")
            found = rows.limit(_DIFFERENCES_MAX + 1).collect()
        finally:
            spark.stop()
    for row in found[:_DIFFERENCES_MAX]:
        print(f"{row.topic}-{row.partition} offset {row.offset}: {_replicas_text(row.found)}")
    if len(found) > _DIFFERENCES_MAX:
        print(f"and more; the first {_DIFFERENCES_MAX} are shown")
    replicas = len({(each.topic, each.partition, each.replica) for each in tasks})
    print(f"{replicas} replicas compared: {'they differ' if found else 'no difference'}")
    return 1 if found else 0


_DIFFERENCES_MAX: Final = 100


def _replicas_text(found: Sequence[Any]) -> str:
    return ", ".join(
        f"replica {each.replica} {each.problem or f'to {each.last} with {each.checksum:08x}'}"
        for each in found
    )


def _compact(options: Options, argv: Sequence[str]) -> int:
    from sparkraft.pipeline import upkeep

    _file(options)
    options.value("--target-mib", type=int, default=128, about="size of files (default: 128)")
    options.value(
        "--retain-hours",
        type=int,
        default=upkeep.RETAIN_HOURS,
        about=f"how long replaced files are kept for readers (default: {upkeep.RETAIN_HOURS})",
    )
    values = options.parse(argv)
    if values.target_mib < 1:
        raise UsageError("--target-mib must be above 0")
    _needs_spark()
    with _mistakes(values.file):
        pipeline = _load(values)
        for name, keep_up in _tables(pipeline):
            done = keep_up(target_bytes=values.target_mib << 20, retain_hours=values.retain_hours)
            print(f"{name}: {done.before} files before, {done.after} after, {done.deleted} deleted")
    return 0


def _tables(pipeline: Pipeline) -> list[tuple[str, Callable[..., Upkeep]]]:
    from sparkraft.pipeline import iceberg_upkeep, sinks, upkeep

    found: list[tuple[str, Callable[..., Upkeep]]] = []
    for sink in pipeline.sinks:
        if sink.kind == "delta":
            found.append((sink.path, partial(upkeep.keep_up, sink.path)))
        if sink.kind == "iceberg":
            table = sinks.iceberg_sink(sink)
            found.append((sink.table, partial(iceberg_upkeep.keep_up, table)))
    if not found:
        raise CommandError("the file has no delta or iceberg sink")
    return found


_ACTIONS: Final[dict[str, tuple[Callable[[Options, Sequence[str]], int], str]]] = {
    "run": (_run, "run a pipeline; Ctrl-C and SIGTERM stop it between two batches"),
    "test": (_test, "run the tests in the file"),
    "list": (_list, "list the pipelines whose checkpoints are below a folder"),
    "status": (_status, "print the state of a pipeline and its last batch, as JSON"),
    "stop": (_stop, "stop a running pipeline after its batch"),
    "pause": (_pause, "pause a running pipeline after its batch; Spark stays up"),
    "resume": (_resume, "continue a paused pipeline"),
    "reset": (_reset, "delete the checkpoint: the next run begins at startingOffsets"),
    "recover": (_recover, "end the transactions that an exactly-once query has left open"),
    "compact": (
        _compact,
        "join small files of table sinks and delete old ones, also while they are written",
    ),
    "audit": (_audit, "compare all replicas of topics by offset and checksum"),
    "backfill": (_backfill, "process the records of an earlier time into tables with keys"),
}
