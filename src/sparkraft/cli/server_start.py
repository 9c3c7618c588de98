"""`server-start FILE [--override key=value]…`: runs one node until SIGTERM or SIGINT.

Parsed by hand: from the start of the process to the first answer counts every import.
"""

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError, UsageError

if TYPE_CHECKING:
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.node import Node

_USAGE = """\
usage: sparkraft server-start FILE [--override key=value] …

Runs one node, configured by a server.properties file, until SIGTERM or Ctrl-C.

  FILE                  Kafka's server.properties, with Kafka's keys
  --override key=value  a value over the file's; may be repeated
  --version             print sparkraft's version
  --help                this text"""


def main(argv: list[str]) -> int:
    """Run the node; 0 after a clean stop."""
    if not argv or argv[0] in {"-h", "--help"}:
        print(_USAGE)
        return 0 if argv else 2
    if "--version" in argv:  # wherever it stands, as for kafka.Kafka
        from sparkraft import __version__

        print(__version__)
        return 0
    path, overrides = _parse(argv)
    gc.disable()  # nothing of a start is garbage; `GarbageSearch` enables it again
    _log_to_stdout()
    from sparkraft.server.config import ConfigError, NodeConfig

    try:
        config = NodeConfig.from_text(_read(path), overrides)
    except ConfigError as error:
        raise CommandError(f"{path}: {error}") from error
    _configure_log(config)
    _report_crashes(config)
    try:
        return _run(config)
    except ConfigError as error:  # only the node itself can check it
        raise CommandError(f"{path}: {error}") from error


def _run(config: "NodeConfig") -> int:
    import asyncio

    from sparkraft.server.api.preload import HandlerLoader
    from sparkraft.server.env import real_env
    from sparkraft.server.garbage import GarbageSearch
    from sparkraft.server.limits import MemoryTrimmer
    from sparkraft.server.node import Node

    def started() -> None:
        HandlerLoader(zookeeper=config.is_zookeeper).start()
        GarbageSearch().start()
        MemoryTrimmer().start()

    async def run() -> int:
        node = _zookeeper_node(config) if config.is_zookeeper else Node(config, real_env())
        return await node.run(started=started)

    return asyncio.run(run())


def _zookeeper_node(config: "NodeConfig") -> "Node":
    from sparkraft.server.env import real_env
    from sparkraft.server.zookeeper_node import ZooKeeperNode

    return ZooKeeperNode(config, real_env())


def _log_to_stdout() -> None:
    import logging

    from sparkraft.cli.log_lines import LimitedHandler

    # Kafka's shape of a line, and its stream.
    logging.basicConfig(
        level=logging.INFO,
        handlers=[LimitedHandler(sys.stdout)],
        format="[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)",
        datefmt="%Y-%m-%d %H:%M:%S",
    )


def _configure_log(config: "NodeConfig") -> None:
    """Apply `sparkraft.log.*`; until here lines are text on standard output."""
    import logging

    folder = config.text("sparkraft.log.dir")
    is_json = config.text("sparkraft.log.format") == "json"
    if not folder and not is_json:
        return
    from sparkraft.cli.log_files import JsonFormatter, log_to_files

    output = logging.getLogger().handlers[0]
    formatter = output.formatter
    if is_json:
        formatter = JsonFormatter(config.node_id, ",".join(sorted(config.roles)))
        output.setFormatter(formatter)
    if folder:
        assert formatter is not None
        bytes_max = config.number("sparkraft.log.file.bytes")
        count = config.number("sparkraft.log.file.count")
        try:
            log_to_files(Path(folder), formatter, bytes_max=bytes_max, count=count)
        except OSError as error:
            raise CommandError(f"sparkraft.log.dir={folder}: {error.strerror}") from error


def _report_crashes(config: "NodeConfig") -> None:
    from sparkraft.cli.crash_reports import report_crashes

    folder = config.text("sparkraft.log.dir")
    try:
        report_crashes(folder)
    except OSError as error:
        raise CommandError(f"sparkraft.log.dir={folder}: {error.strerror}") from error


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 text: {error}") from error


def _parse(argv: list[str]) -> tuple[str, dict[str, str]]:
    path = None
    overrides: dict[str, str] = {}
    rest = iter(argv)
    for word in rest:
        if word == "--override" or word.startswith("--override="):
            entry = word.partition("=")[2] if "=" in word else next(rest, "")
            key, equals, value = entry.partition("=")
            if not equals or not key:
                raise UsageError(f"--override wants key=value, not {entry!r}")
            overrides[key] = value
        elif word.startswith("-"):
            raise UsageError(f"unknown option {word}; did you mean --override?")
        elif path is None:
            path = word
        else:
            raise UsageError(f"one FILE, not {path} and {word}")
    if path is None:
        raise UsageError("missing FILE, a server.properties")
    return path, overrides
