"""`sparkraft storage random-uuid | format | info | version-mapping | feature-dependencies`.

Kafka's storage tool:

    sparkraft storage format -c server.properties -t CLUSTER_ID --standalone

A directory formatted here starts under Apache Kafka, and one formatted there starts here.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from sparkraft.base.env import Clock, Entropy, random_uuid
from sparkraft.base.ids import BrokerId, Uuid
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.feature_levels import print_dependencies, print_version_mapping
from sparkraft.cli.options import Options, Values
from sparkraft.metadata.features import (
    FEATURE_DEPENDENCIES,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    default_levels,
    level_of,
    name_of,
)
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.protocol.messages.metadata_records import FeatureLevelRecord
from sparkraft.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.server.env import SystemClock, SystemEntropy
from sparkraft.storage.disk import Disk, OsDisk
from sparkraft.storage.format import FormatError, FormatRequest, format_directories
from sparkraft.storage.meta_properties import (
    BadMetaProperties,
    MetaProperties,
    read_meta_properties,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.records.control import ControlType

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
        raise UsageError(f"there is no {argv[0]!r}: it is one of {', '.join(commands)}")
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
        format_node(config, values, disk=disk, clock=clock, entropy=entropy)
    except FormatError as error:
        raise CommandError(str(error)) from error
    finally:
        disk.close()
    return 0


def format_node(
    config: NodeConfig, values: Values, *, disk: Disk, clock: Clock, entropy: Entropy
) -> None:
    """Format the directories of `config` as `values`, the options of `format`, say."""
    voters = _initial_voters(config, values, entropy)
    levels = _feature_levels(values, dynamic=not config.words("controller.quorum.voters"))
    records = _bootstrap_records(levels, values.add_scram, entropy)
    own = voters.get(BrokerId(config.node_id))
    request = FormatRequest(
        directories=tuple(_directories(config)),
        metadata_directory=config.metadata_log_dir,
        cluster_id=values.cluster_id,
        node_id=BrokerId(config.node_id),
        bootstrap_records=tuple(records),
        voter_controls=_voter_controls(levels, voters),
        directory_id=own.key.directory_id if own else None,
        ignore_formatted=values.ignore_formatted,
    )
    written = format_directories(disk, request, clock=clock, entropy=entropy)
    if not written:
        print("All of the log directories are already formatted.")
    for directory in written:
        kind = _kind(config, directory, voters)
        release = name_of(levels[METADATA_VERSION])
        print(f"Formatting {kind} {directory} with metadata.version {release}.")


def _voter_controls(
    levels: dict[str, int], voters: VoterSet
) -> tuple[tuple["ControlType", bytes], ...]:
    # Loaded here: random-uuid and info need nothing of the server.
    from sparkraft.server.raft.records import snapshot_controls

    return tuple(snapshot_controls(levels[KRAFT_VERSION], voters)) if len(voters) else ()


def _kind(config: NodeConfig, directory: str, voters: VoterSet) -> str:
    """What Kafka calls such a directory."""
    if directory != config.metadata_log_dir:
        return "data directory"
    if not len(voters):
        return "metadata directory"
    if voters.get(BrokerId(config.node_id)) is None:
        return "dynamic metadata directory"
    return "dynamic metadata voter directory"


def _directories(config: NodeConfig) -> list[str]:
    return sorted({*config.log_dirs, config.metadata_log_dir})


def _read_config(path: str) -> NodeConfig:
    try:
        return NodeConfig.from_text(Path(path).read_text(encoding="latin-1"))
    except ConfigError as error:
        raise CommandError(f"{path}: {error}") from error


def _initial_voters(config: NodeConfig, values: Values, entropy: Entropy) -> VoterSet:
    """The voters to write down; empty where none are known."""
    static = config.words("controller.quorum.voters")
    if static and (values.standalone or values.initial_controllers):
        raise CommandError(
            "You cannot specify controller.quorum.voters and format the node with "
            "--initial-controllers or --standalone. If you want to use dynamic quorum, please "
            "remove controller.quorum.voters and specify controller.quorum.bootstrap.servers "
            "instead."
        )
    if values.standalone:
        return VoterSet.of([_standalone(config, entropy)])
    if values.initial_controllers:
        return _parse_voters(config, values.initial_controllers)
    if config.is_controller and not static and not values.no_initial_controllers:
        raise CommandError(
            "Because controller.quorum.voters is not set on this controller, you must specify one "
            "of the following: --standalone, --initial-controllers, or --no-initial-controllers."
        )
    return VoterSet()


def _standalone(config: NodeConfig, entropy: Entropy) -> Voter:
    if not config.is_controller:
        raise CommandError("You can only use --standalone on a controller.")
    names = config.controller_listener_names
    address = next(a for a in config.advertised_listeners if a.name in names)
    return Voter(
        key=ReplicaKey(BrokerId(config.node_id), random_uuid(entropy)),
        endpoints=(Endpoint(address.name, address.host, address.port),),
    )


def _parse_voters(config: NodeConfig, text: str) -> VoterSet:
    listener = config.controller_listener_names[0]
    try:
        return VoterSet.of(_parse_voter(entry.strip(), listener) for entry in text.split(","))
    except ValueError as error:
        raise CommandError(f"--initial-controllers: {error}") from error


def _parse_voter(entry: str, listener: str) -> Voter:
    """`id@host:port:directory-id`; a host with colons stands in brackets."""
    node_id, at, address = entry.partition("@")
    rest, _, directory = address.rpartition(":")
    host, _, port = rest.rpartition(":")
    numbers = node_id.isascii() and node_id.isdigit() and port.isascii() and port.isdigit()
    if not (at and host and numbers) or int(port) > 65535:  # noqa: PLR2004 (TCP's largest port)
        raise ValueError(f"{entry!r} is not of the form id@host:port:directory-id")
    return Voter(
        key=ReplicaKey(BrokerId(int(node_id)), Uuid.parse(directory)),
        endpoints=(Endpoint(listener, host.strip("[]"), int(port)),),
    )


def _feature_levels(values: Values, *, dynamic: bool) -> dict[str, int]:
    """What the cluster finalizes, metadata.version and kraft.version among it."""
    given = dict(_feature(entry) for entry in values.feature)
    if METADATA_VERSION in given and values.release_version:
        raise CommandError(
            "Use --release-version instead of --feature metadata.version=X to avoid ambiguity."
        )
    release = given.get(METADATA_VERSION, SUPPORTED_FEATURES[METADATA_VERSION][1])
    if values.release_version:
        found = level_of(values.release_version)
        if found is None:
            raise CommandError(f"Unknown metadata.version {values.release_version!r}")
        release = found
    levels = default_levels(release) | {KRAFT_VERSION: 1 if dynamic else 0} | given
    for name, level in levels.items():
        _check_feature(name, level, levels)
    _check_kraft_version(levels[KRAFT_VERSION], dynamic=dynamic)
    return levels


def _feature(entry: str) -> tuple[str, int]:
    name, equals, level = entry.partition("=")
    if not equals or not level.strip().isascii() or not level.strip().isdigit():
        raise CommandError(f"--feature wants FEATURE=LEVEL, not {entry!r}")
    return name.strip(), int(level)


def _check_feature(name: str, level: int, levels: dict[str, int]) -> None:
    if name not in SUPPORTED_FEATURES:
        known = ", ".join(sorted(SUPPORTED_FEATURES))
        raise CommandError(f"Unsupported feature: {name}. Supported features are: {known}")
    low, high = SUPPORTED_FEATURES[name]
    if not low <= level <= high:
        raise CommandError(f"No feature:{name} with feature level {level}")
    for needed, at_least in FEATURE_DEPENDENCIES.get((name, level), {}).items():
        if levels.get(needed, 0) < at_least:
            shown = f"{needed}={at_least}"
            raise CommandError(f"{name} could not be set to {level} because it depends on {shown}")


def _check_kraft_version(level: int, *, dynamic: bool) -> None:
    if level == 0 and dynamic:
        raise CommandError(
            "Cannot set kraft.version to 0 if controller.quorum.voters is empty: the quorum is "
            "dynamic then"
        )
    if level > 0 and not dynamic:
        raise CommandError(
            f"Cannot set kraft.version to {level} unless controller.quorum.voters is empty and one "
            "of the flags --standalone, --initial-controllers, or --no-initial-controllers is used"
        )


def _bootstrap_records(levels: dict[str, int], scram: list[str], entropy: Entropy) -> list[bytes]:
    """metadata.version first, then the other features by name; kraft.version is no record."""
    others = sorted(set(levels) - {METADATA_VERSION, KRAFT_VERSION})
    wanted = [METADATA_VERSION, *(name for name in others if levels[name] > 0)]
    records = [
        encode_metadata_record(FeatureLevelRecord(name=name, feature_level=levels[name]), 0)
        for name in wanted
    ]
    if scram:
        if levels[METADATA_VERSION] < _SCRAM_LEVEL:
            raise CommandError("SCRAM is only supported in metadata.version 3.5-IV2 or later.")
        from sparkraft.cli.scram_argument import scram_record

        records += [encode_metadata_record(scram_record(entry, entropy), 0) for entry in scram]
    return records


# ---- info


def _info(argv: list[str]) -> int:
    options = Options("storage info", "Say what the log directories of one node hold.")
    options.value("--config", "-c", about="the node's server.properties", required=True)
    options.output()
    values = options.parse(argv)
    config = _read_config(values.config)
    disk = OsDisk()
    try:
        found, first, problems = _inspect(disk, _directories(config))
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
