"""`sparkraft storage random-uuid | format | info | version-mapping | feature-dependencies`.

Kafka's storage tool:

    sparkraft storage format -c server.properties -t CLUSTER_ID --standalone

A directory formatted here starts under Apache Kafka, and one formatted there starts here.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from sparkraft.base.env import Entropy, random_uuid
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.feature_levels import print_dependencies, print_version_mapping
from sparkraft.cli.options import Options
from sparkraft.metadata.features import METADATA_VERSION
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.server.env import SystemClock, SystemEntropy
from sparkraft.server.node_format import FormatOptions, directories_of, format_node
from sparkraft.storage.disk import Disk, OsDisk
from sparkraft.storage.format import FormatError
from sparkraft.storage.meta_properties import (
    BadMetaProperties,
    MetaProperties,
    read_meta_properties,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SCRAM_LEVEL = 11
"""metadata.version 3.5-IV2, from which SCRAM credentials may stand in the metadata log."""


def main(argv: list[str]) -> int:
    """Run one of the tool's commands; the exit code."""
    commands: dict[str, Callable[[list[str]], int]] = {
        "format": _format,
        "info": _info,
        "random-uuid": _random_uuid,
        "version-mapping": _version_mapping,
        "feature-dependencies": _feature_dependencies,
    }
    if not argv or argv[0] in {"-h", "--help"}:
        print(f"usage: sparkraft storage {' | '.join(commands)}; each has --help")
        return 0 if argv else 2
    command = commands.get(argv[0])
    if command is None:
        raise UsageError(f"unknown command {argv[0]!r}; expected one of {', '.join(commands)}")
    return command(argv[1:])


def _random_uuid(argv: list[str]) -> int:
    Options("storage random-uuid", "Print a random id, for a cluster or a directory.").parse(argv)
    print(random_uuid(SystemEntropy()))
    return 0


def _version_mapping(argv: list[str]) -> int:
    options = Options("storage version-mapping", "Print the feature levels of a release.")
    options.value("--release-version", "-r", about="the release; default: newest")
    options.output()
    return print_version_mapping(options.parse(argv))


def _feature_dependencies(argv: list[str]) -> int:
    options = Options("storage feature-dependencies", "Print what feature levels need.")
    options.values("--feature", "-f", about="FEATURE=LEVEL; repeatable")
    options.output()
    values = options.parse(argv)
    if not values.feature:
        raise UsageError("missing --feature")
    return print_dependencies(values)


# ---- format


def _format_options() -> Options:
    options = Options("storage format", "Format the log directories of one node.")
    options.value("--config", "-c", about="the node's server.properties", required=True)
    options.value("--cluster-id", "-t", about="the cluster's id", required=True)
    options.value("--release-version", "-r", about="features as of this release; default: newest")
    options.values("--feature", "-f", about="FEATURE=LEVEL instead of the release's level")
    options.values("--add-scram", "-S", about="MECHANISM=[name=…,password=…]: a first credential")
    options.add_argument(
        "--ignore-formatted",
        "-g",
        action="store_true",
        help="leave directories alone that are formatted already",
    )
    group = options.add_mutually_exclusive_group()
    group.add_argument(
        "--standalone", "-s", action="store_true", help="this controller alone is the quorum"
    )
    group.add_argument(
        "--no-initial-controllers",
        "-N",
        action="store_true",
        help="the quorum exists already, or others start it",
    )
    group.add_argument(
        "--initial-controllers",
        "-I",
        help="the first voters: id@host:port:directory-id,… the same on every node",
    )
    return options


def _format(argv: list[str]) -> int:
    values = _format_options().parse(argv)
    config = _read_config(values.config)
    disk, clock, entropy = OsDisk(), SystemClock(), SystemEntropy()
    try:
        options = FormatOptions(
            cluster_id=values.cluster_id,
            release_version=values.release_version,
            features=dict(_feature(entry) for entry in values.feature),
            standalone=values.standalone,
            initial_controllers=values.initial_controllers,
            no_initial_controllers=values.no_initial_controllers,
            ignore_formatted=values.ignore_formatted,
            more_records=lambda levels: _scram_records(values.add_scram, levels, entropy),
        )
        written = format_node(config, options, disk=disk, clock=clock, entropy=entropy)
    except FormatError as error:
        raise CommandError(str(error)) from error
    finally:
        disk.close()
    if not written:
        print("All of the log directories are already formatted.")
    for directory in written:
        print(
            f"Formatting {directory.kind} {directory.path} with metadata.version "
            f"{directory.release}."
        )
    return 0


def _read_config(path: str) -> NodeConfig:
    try:
        return NodeConfig.from_text(Path(path).read_text(encoding="latin-1"))
    except ConfigError as error:
        raise CommandError(f"{path}: {error}") from error


def _feature(entry: str) -> tuple[str, int]:
    name, equals, level = entry.partition("=")
    if not equals or not level.strip().isascii() or not level.strip().isdigit():
        raise CommandError(f"--feature wants FEATURE=LEVEL, not {entry!r}")
    return name.strip(), int(level)


def _scram_records(scram: list[str], levels: "Mapping[str, int]", entropy: Entropy) -> list[bytes]:
    if not scram:
        return []
    if levels[METADATA_VERSION] < _SCRAM_LEVEL:
        raise CommandError("SCRAM is only supported in metadata.version 3.5-IV2 or later.")
    from sparkraft.cli.scram_argument import scram_record

    return [encode_metadata_record(scram_record(entry, entropy), 0) for entry in scram]


# ---- info


def _info(argv: list[str]) -> int:
    options = Options("storage info", "Say what the log directories of one node hold.")
    options.value("--config", "-c", about="the node's server.properties", required=True)
    options.output()
    values = options.parse(argv)
    config = _read_config(values.config)
    disk = OsDisk()
    try:
        found, first, problems = _inspect(disk, directories_of(config))
    finally:
        disk.close()
    if values.output == "json":
        # It brings the client along, which no other command of this tool needs.
        from sparkraft.cli.session import print_json

        metadata = None if first is None else dict(_fields(first))
        print_json({"directories": found, "metadata": metadata, "problems": problems})
        return 1 if problems else 0
    if found:
        print("Found log directory:" if len(found) == 1 else "Found log directories:")
        print(*(f"  {directory}" for directory in found), sep="\n", end="\n\n")
    if first is not None:
        shown = ", ".join(f"{name}={value}" for name, value in _fields(first))
        print(f"Found metadata: {{{shown}}}\n")
    if problems:
        print("Found problem:" if len(problems) == 1 else "Found problems:")
        print(*(f"  {problem}" for problem in problems), sep="\n", end="\n\n")
    return 1 if problems else 0


def _fields(meta: MetaProperties) -> list[tuple[str, str]]:
    fields = {"cluster.id": meta.cluster_id, "node.id": str(meta.node_id)}
    if meta.directory_id is not None:
        fields["directory.id"] = str(meta.directory_id)
    fields["version"] = str(meta.version)
    return sorted(fields.items())


def _inspect(
    disk: Disk, directories: list[str]
) -> tuple[list[str], MetaProperties | None, list[str]]:
    """Directories that exist, the first identity found, and what is wrong."""
    found, problems = [], []
    first: MetaProperties | None = None
    for directory in directories:
        if not disk.is_dir(directory):
            exists = disk.size(directory) >= 0
            problems.append(f"{directory} {'is not a directory' if exists else 'does not exist'}")
            continue
        found.append(directory)
        try:
            meta = read_meta_properties(disk, directory)
        except BadMetaProperties as error:
            problems.append(f"Error loading {directory}/meta.properties: {error}")
            continue
        if meta is None:
            problems.append(f"{directory} is not formatted.")
            continue
        first = first or meta
        if meta.cluster_id != first.cluster_id:
            problems.append("Mismatched cluster IDs between storage directories.")
        elif meta.node_id != first.node_id:
            problems.append("Mismatched node IDs between storage directories.")
    return found, first, problems
