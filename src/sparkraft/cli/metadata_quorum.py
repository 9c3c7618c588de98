"""`metadata-quorum describe | add-controller | remove-controller`, as `kafka-metadata-quorum.sh`.

Ours: `resign` moves the active controller to another voter, `repair` leads a stopped cluster out of
the last epochs (`cli.quorum_repair`).
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkraft.base.ids import Uuid
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options, Values, exactly_one
from sparkraft.cli.quorum_repair import repair
from sparkraft.cli.session import connected, print_json, run
from sparkraft.client.admin import Admin
from sparkraft.client.quorum_admin import add_voter, remove_voter, resign

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkraft.client.values import QuorumInfo, QuorumReplica
    from sparkraft.server.config import NodeConfig

_HEADER = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)


def main(argv: list[str]) -> int:
    """Do one action."""
    options = Options("metadata-quorum", "Shows and changes the metadata quorum.")
    options.add_argument(
        "action", choices=["describe", "add-controller", "remove-controller", "resign", "repair"]
    )
    options.connection(controllers=True)
    options.flag("--status", "describe: a summary")
    options.flag("--replication", "describe: every voter and observer")
    options.flag("--human-readable", "with --replication: times as ms ago")
    options.value("--controller-id", "-i", about="remove-controller: its id", type=int)
    options.value("--controller-directory-id", "-d", about="remove-controller: its directory id")
    options.value("--epoch", about="repair: the epoch to go back to", type=int, metavar="N")
    options.flag("--dry-run", "only say what would be done")
    options.output()
    values = options.parse(argv)
    _check(values)
    if values.action == "repair":
        return repair(values)
    actions = {"describe": _main, "add-controller": _add, "remove-controller": _remove}
    return run(actions.get(values.action, _resign)(values))


_BELONGS = {
    "describe": ("--status", "--replication", "--human-readable"),
    "remove-controller": ("--controller-id", "--controller-directory-id", "--dry-run"),
    "add-controller": ("--dry-run",),
    "resign": (),
    "repair": ("--epoch", "--dry-run"),
}


def _check(values: Values) -> None:
    given = {name for names in _BELONGS.values() for name in names if _is_given(values, name)}
    wrong = sorted(given.difference(_BELONGS[values.action]))
    if wrong:
        raise UsageError(f"{', '.join(wrong)} does not go with {values.action}")
    if values.action == "describe":
        what = exactly_one(values, ["--status", "--replication"])
        if values.human_readable and what == "--status":
            raise UsageError("--human-readable goes only with --replication")
    if values.action == "remove-controller":
        for name in ("--controller-id", "--controller-directory-id"):
            if not _is_given(values, name):
                raise UsageError(f"missing {name}")
        if values.controller_id < 0:
            raise UsageError(f"--controller-id {values.controller_id} is negative")
    if values.action == "add-controller" and not values.command_config:
        raise UsageError("--command-config names the properties file of the controller to add")
    if values.action == "repair":
        _check_repair(values)


def _check_repair(values: Values) -> None:
    if not values.command_config:
        raise UsageError("--command-config names the properties file of the stopped node")
    if values.bootstrap_server or values.bootstrap_controller:
        raise UsageError("repair works on a stopped node: it connects to none")
    if values.epoch is not None and values.epoch < 0:
        raise UsageError(f"--epoch {values.epoch} is negative")


def _is_given(values: Values, name: str) -> bool:
    found = getattr(values, name.removeprefix("--").replace("-", "_"))
    return found is not None and found is not False


async def _add(values: Values) -> int:
    config, directory_id = _controller_of(values.command_config)
    names = config.controller_listener_names
    endpoints = [(a.name, a.host, a.port) for a in config.advertised_listeners if a.name in names]
    if not values.dry_run:
        async with connected(values, client_id="metadata-quorum") as cluster:
            await add_voter(
                cluster,
                voter_id=config.node_id,
                directory_id=directory_id,
                endpoints=endpoints,
            )
    shown = [f"{name}://{_host(host)}:{port}" for name, host, port in endpoints]
    done = {"id": config.node_id, "directoryId": str(directory_id), "endpoints": shown}
    start = "DRY RUN of adding" if values.dry_run else "Added"
    sentence = f"{start} controller {config.node_id} with directory id {directory_id}"
    return _say(values, done, f"{sentence} and endpoints: {', '.join(shown)}")


def _controller_of(path: str) -> tuple[NodeConfig, Uuid]:
    """The configuration in `path`, and the id of its metadata directory."""
    # No other action needs a node's parts.
    from sparkraft.server.config import ConfigError, NodeConfig
    from sparkraft.storage.disk import OsDisk
    from sparkraft.storage.meta_properties import BadMetaProperties, read_meta_properties

    try:
        config = NodeConfig.from_text(Path(path).read_text(encoding="latin-1"))
    except (OSError, ConfigError) as error:
        raise CommandError(f"{path}: {error}") from error
    if not config.is_controller:
        raise CommandError(f"{path}: process.roles does not name controller")
    try:
        meta = read_meta_properties(OsDisk(), config.metadata_log_dir)
    except BadMetaProperties as error:
        raise CommandError(str(error)) from error
    if meta is None or meta.directory_id is None:
        raise CommandError(f"{config.metadata_log_dir} is not formatted with a directory id")
    return config, meta.directory_id


async def _remove(values: Values) -> int:
    text = values.controller_directory_id
    try:
        directory_id = Uuid.parse(text)
    except ValueError as error:
        raise CommandError(f"--controller-directory-id {text!r}: {error}") from error
    if not values.dry_run:
        async with connected(values, client_id="metadata-quorum") as cluster:
            await remove_voter(cluster, voter_id=values.controller_id, directory_id=directory_id)
    done = {"id": values.controller_id, "directoryId": text}
    # Kafka's own tool has the two blanks.
    start = "DRY RUN of removing " if values.dry_run else "Removed "
    sentence = f"{start} KRaft controller {values.controller_id} with directory id {text}"
    return _say(values, done, sentence)


async def _resign(values: Values) -> int:
    async with connected(values, client_id="metadata-quorum") as cluster:
        leader, epoch = await resign(cluster)
    sentence = f"Controller {leader} resigned its leadership of epoch {epoch}"
    return _say(values, {"id": leader, "epoch": epoch}, sentence)


def _say(values: Values, done: dict[str, Any], sentence: str) -> int:
    if values.output == "json":
        print_json(done)
    else:
        print(sentence)
    return 0


async def _main(values: Values) -> int:
    async with connected(values, client_id="metadata-quorum") as cluster:
        admin = Admin(cluster)
        quorum = await admin.describe_quorum()
        cluster_id = (await admin.describe_cluster()).cluster_id
    leader = next((v for v in quorum.voters if v.id == quorum.leader_id), None)
    if leader is None:
        raise CommandError(f"the leader {quorum.leader_id} is not among the voters")
    if values.replication:
        _replication(values, quorum, leader)
    else:
        _status(values, quorum, leader, cluster_id)
    return 0


def _status(values: Values, quorum: QuorumInfo, leader: QuorumReplica, cluster_id: str) -> None:
    last = min(quorum.voters, key=lambda voter: voter.log_end_offset)
    lag_ms = 0
    if last is not leader:
        known = leader.last_caught_up_ms >= 0 and last.last_caught_up_ms >= 0
        lag_ms = leader.last_caught_up_ms - last.last_caught_up_ms if known else -1
    shown: dict[str, Any] = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - last.log_end_offset,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": [_member(quorum, voter) for voter in quorum.voters],
        "CurrentObservers": [_member(quorum, observer) for observer in quorum.observers],
    }
    if values.output == "json":
        print_json({key[0].lower() + key[1:]: value for key, value in shown.items()})
        return
    for key, value in shown.items():
        text = f"[{', '.join(map(json.dumps, value))}]" if isinstance(value, list) else value
        print(f"{key + ':':<23} {text}")


def _member(quorum: QuorumInfo, replica: QuorumReplica) -> dict[str, Any]:
    found: dict[str, Any] = {"id": replica.id}
    if replica.directory_id != Uuid.ZERO:
        found["directoryId"] = str(replica.directory_id)
    endpoints = quorum.endpoints.get(replica.id, ())
    if endpoints:
        found["endpoints"] = [f"{name}://{_host(host)}:{port}" for name, host, port in endpoints]
    return found


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _replication(values: Values, quorum: QuorumInfo, leader: QuorumReplica) -> None:
    followers = [voter for voter in quorum.voters if voter is not leader]
    rows = [
        *_rows(values, leader, [leader], "Leader"),
        *_rows(values, leader, followers, "Follower"),
        *_rows(values, leader, quorum.observers, "Observer"),
    ]
    if values.output == "json":
        names = [name[0].lower() + name[1:] for name in _HEADER]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    cells = [_HEADER, *(tuple(map(str, row)) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(_HEADER))]
    for row in cells:
        print("".join(f"{c.ljust(w)}\t" for c, w in zip(row, widths, strict=True)))


def _rows(
    values: Values, leader: QuorumReplica, replicas: Iterable[QuorumReplica], status: str
) -> Iterable[Sequence[object]]:
    for replica in replicas:
        yield (
            replica.id,
            str(replica.directory_id),
            replica.log_end_offset,
            leader.log_end_offset - replica.log_end_offset,
            _when(values, replica.last_fetch_ms),
            _when(values, replica.last_caught_up_ms),
            status,
        )


def _when(values: Values, ms: int) -> object:
    if ms < 0 or not values.human_readable:
        return ms
    return f"{max(0, time.time_ns() // 1_000_000 - ms)} ms ago"
