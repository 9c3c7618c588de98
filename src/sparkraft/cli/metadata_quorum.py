"""`metadata-quorum describe --status|--replication`, as `kafka-metadata-quorum.sh`.

Not done: add-controller and remove-controller.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from sparkraft.base.ids import Uuid
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options, Values, exactly_one
from sparkraft.cli.session import connected, print_json, run
from sparkraft.client.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkraft.client.values import QuorumInfo, QuorumReplica

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
    """Describe the quorum."""
    options = Options("metadata-quorum", "Shows the state of the metadata quorum.")
    options.add_argument("action", choices=["describe", "add-controller", "remove-controller"])
    options.connection(controllers=True)
    options.flag("--status", "a summary")
    options.flag("--replication", "every voter and observer")
    options.flag("--human-readable", "with --replication: times as ms ago")
    options.output()
    values = options.parse(argv)
    if values.action != "describe":
        raise CommandError(f"{values.action} is not there yet: the voters stay as they were made")
    what = exactly_one(values, ["--status", "--replication"])
    if values.human_readable and what == "--status":
        raise UsageError("--human-readable goes only with --replication")
    return run(_main(values))


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
