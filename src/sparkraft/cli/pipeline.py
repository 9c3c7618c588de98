"""`pipeline run FILE`: a pipeline described in one file, on Spark. Ours; Kafka has no such tool."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options, Values, key_values
from sparkraft.cli.session import warn

if TYPE_CHECKING:
    from types import FrameType

    from sparkraft.pipeline.run import Progress


def _options() -> Options:
    options = Options("pipeline run", "Runs the pipeline that FILE describes, on Spark.")
    options.add_argument("file", metavar="FILE", help="a TOML file; see docs of the pipeline")
    options.value("--master", about="Spark master (default: the file's, else local[*])")
    options.values("--set", about="a value for ${KEY} in FILE; repeatable", metavar="KEY=VALUE")
    options.flag("--once", "stop when everything there is now is processed")
    options.flag("--check", "only look for mistakes in FILE, process nothing")
    return options


def main(argv: list[str]) -> int:
    """Run it until it ends; Ctrl-C and SIGTERM stop it between batches."""
    if not argv or argv[0] != "run":
        if argv and argv[0] in {"-h", "--help"}:
            _options().parse(["--help"])
        raise UsageError("say what to do: sparkraft pipeline run FILE")
    return _run(_options().parse(argv[1:]))


def _run(values: Values) -> int:
    from dataclasses import replace
    from importlib.util import find_spec

    for needed in ("pyspark", "pyarrow", "numpy", "deltalake"):
        if find_spec(needed) is None:
            raise CommandError(f"{needed} is not installed: pip install 'sparkraft[pipeline]'")
    # Imported after the command line is known to be good.
    from sparkraft.pipeline import run as running
    from sparkraft.pipeline import spec
    from sparkraft.pipeline.options import OptionError
    from sparkraft.pipeline.session import NoJava

    try:
        pipeline = spec.load(Path(values.file), key_values(values.set, "--set"))
        pipeline = replace(pipeline, master=values.master or pipeline.master)
        if values.once:
            pipeline = replace(pipeline, trigger="available now")
        if values.check:
            running.check_with_spark(pipeline)
            warn(f"{values.file} is fine")
            return 0
        warn(f"{pipeline.name}: starting Spark on {pipeline.master}")
        running.run(pipeline, on_progress=_show, should_stop=_stopper())
    except (spec.SpecError, OptionError) as error:
        said = str(error)
        named = said.startswith(f"{values.file}: ")
        raise CommandError(said if named else f"{values.file}: {said}") from error
    except (NoJava, running.PipelineError) as error:
        raise CommandError(str(error)) from error
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
