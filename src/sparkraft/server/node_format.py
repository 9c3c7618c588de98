"""Format the log directories of one node: features, first voters, bootstrap records.

Not here: the files themselves (`storage.format`), the options of `storage format` (`cli.storage`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sparkraft.base.env import Clock, Entropy, random_uuid
from sparkraft.base.ids import BrokerId, Uuid
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
from sparkraft.server.config import NodeConfig
from sparkraft.storage.disk import Disk
from sparkraft.storage.format import FormatError, FormatRequest, format_directories

if TYPE_CHECKING:
    from sparkraft.records.control import ControlType


def _no_records(_levels: Mapping[str, int]) -> list[bytes]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """How to format a node.

    Attributes:
        release_version: the release whose features are finalized; None for the newest.
        features: levels that differ from those of the release.
        standalone: this controller alone is the quorum.
        initial_controllers: the first voters, `id@host:port:directory-id,…`.
        no_initial_controllers: the quorum exists already, or others start it.
        more_records: encoded records after those of the features, given the finalized levels.
    """

    cluster_id: str
    release_version: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    standalone: bool = False
    initial_controllers: str | None = None
    no_initial_controllers: bool = False
    ignore_formatted: bool = False
    more_records: Callable[[Mapping[str, int]], list[bytes]] = _no_records


class FormattedDirectory(NamedTuple):
    """A directory that was formatted, as Kafka describes it."""

    kind: str
    path: str
    release: str


def format_node(
    config: NodeConfig, options: FormatOptions, *, disk: Disk, clock: Clock, entropy: Entropy
) -> list[FormattedDirectory]:
    """Format the directories of `config` that are not formatted yet, and return them.

    Raises:
        FormatError: the options contradict each other, the config, or what the directories hold.
    """
    voters = _initial_voters(config, options, entropy)
    levels = _feature_levels(options, dynamic=not config.words("controller.quorum.voters"))
    records = [*_feature_records(levels), *options.more_records(levels)]
    own = voters.get(BrokerId(config.node_id))
    request = FormatRequest(
        directories=tuple(directories_of(config)),
        metadata_directory=config.metadata_log_dir,
        cluster_id=options.cluster_id,
        node_id=BrokerId(config.node_id),
        bootstrap_records=tuple(records),
        voter_controls=_voter_controls(levels, voters),
        directory_id=own.key.directory_id if own else None,
        ignore_formatted=options.ignore_formatted,
    )
    written = format_directories(disk, request, clock=clock, entropy=entropy)
    release = name_of(levels[METADATA_VERSION])
    return [FormattedDirectory(_kind(config, path, voters), path, release) for path in written]


def _voter_controls(
    levels: dict[str, int], voters: VoterSet
) -> tuple[tuple["ControlType", bytes], ...]:
    # Loaded here: other commands of `storage` do not need it.
    from sparkraft.server.raft.records import snapshot_controls

    return tuple(snapshot_controls(levels[KRAFT_VERSION], voters)) if len(voters) else ()


def _kind(config: NodeConfig, directory: str, voters: VoterSet) -> str:
    """Return Kafka's name for this kind of directory."""
    if directory != config.metadata_log_dir:
        return "data directory"
    if not len(voters):
        return "metadata directory"
    if voters.get(BrokerId(config.node_id)) is None:
        return "dynamic metadata directory"
    return "dynamic metadata voter directory"


def directories_of(config: NodeConfig) -> list[str]:
    return sorted({*config.log_dirs, config.metadata_log_dir})


def _initial_voters(config: NodeConfig, options: FormatOptions, entropy: Entropy) -> VoterSet:
    """Return the voters to write; none if they are not known."""
    static = config.words("controller.quorum.voters")
    if static and (options.standalone or options.initial_controllers):
        raise FormatError(
            "You cannot specify controller.quorum.voters and format the node with "
            "--initial-controllers or --standalone. If you want to use dynamic quorum, please "
            "remove controller.quorum.voters and specify controller.quorum.bootstrap.servers "
            "instead."
        )
    if options.standalone:
        return VoterSet.of([_standalone(config, entropy)])
    if options.initial_controllers:
        return _parse_voters(config, options.initial_controllers)
    if config.is_controller and not static and not options.no_initial_controllers:
        raise FormatError(
            "Because controller.quorum.voters is not set on this controller, you must specify one "
            "of the following: --standalone, --initial-controllers, or --no-initial-controllers."
        )
    return VoterSet()


def _standalone(config: NodeConfig, entropy: Entropy) -> Voter:
    if not config.is_controller:
        raise FormatError("You can only use --standalone on a controller.")
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
        raise FormatError(f"--initial-controllers: {error}") from error


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


def _feature_levels(options: FormatOptions, *, dynamic: bool) -> dict[str, int]:
    """Return the levels to finalize, including metadata.version and kraft.version."""
    given = dict(options.features)
    if METADATA_VERSION in given and options.release_version:
        raise FormatError(
            "Use --release-version instead of --feature metadata.version=X to avoid ambiguity."
        )
    release = given.get(METADATA_VERSION, SUPPORTED_FEATURES[METADATA_VERSION][1])
    if options.release_version:
        found = level_of(options.release_version)
        if found is None:
            raise FormatError(f"Unknown metadata.version {options.release_version!r}")
        release = found
    levels = default_levels(release) | {KRAFT_VERSION: 1 if dynamic else 0} | given
    for name, level in levels.items():
        _check_feature(name, level, levels)
    _check_kraft_version(levels[KRAFT_VERSION], dynamic=dynamic)
    return levels


def _check_feature(name: str, level: int, levels: dict[str, int]) -> None:
    if name not in SUPPORTED_FEATURES:
        known = ", ".join(sorted(SUPPORTED_FEATURES))
        raise FormatError(f"Unsupported feature: {name}. Supported features are: {known}")
    low, high = SUPPORTED_FEATURES[name]
    if not low <= level <= high:
        raise FormatError(f"No feature:{name} with feature level {level}")
    for needed, at_least in FEATURE_DEPENDENCIES.get((name, level), {}).items():
        if levels.get(needed, 0) < at_least:
            shown = f"{needed}={at_least}"
            raise FormatError(f"{name} could not be set to {level} because it depends on {shown}")


def _check_kraft_version(level: int, *, dynamic: bool) -> None:
    if level == 0 and dynamic:
        raise FormatError(
            "Cannot set kraft.version to 0 if controller.quorum.voters is empty: the quorum is "
            "dynamic then"
        )
    if level > 0 and not dynamic:
        raise FormatError(
            f"Cannot set kraft.version to {level} unless controller.quorum.voters is empty and one "
            "of the flags --standalone, --initial-controllers, or --no-initial-controllers is used"
        )


def _feature_records(levels: dict[str, int]) -> list[bytes]:
    """Return metadata.version first, then the other features by name; kraft.version has none."""
    others = sorted(set(levels) - {METADATA_VERSION, KRAFT_VERSION})
    wanted = [METADATA_VERSION, *(name for name in others if levels[name] > 0)]
    return [
        encode_metadata_record(FeatureLevelRecord(name=name, feature_level=levels[name]), 0)
        for name in wanted
    ]
