"""`consumer-groups --describe`: offsets with lag, members, state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.cli.errors import CommandError
from sparkraft.cli.session import print_json, warn
from sparkraft.client.errors import sentence_of
from sparkraft.client.group_lag import GroupLag, group_lags, lag_json
from sparkraft.client.groups import GroupInfo, Groups

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkraft.cli.options import Values
    from sparkraft.client.cluster import Cluster
    from sparkraft.client.groups import GroupMember

_REBALANCING = {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}
_MISSING = "-"


async def describe(cluster: Cluster, values: Values, ids: list[str]) -> int:
    """Describe the groups; 1 if one of them is not there."""
    shown: list[dict[str, Any]] = []
    code = 0
    for group_id in sorted(ids):
        try:
            group = await Groups(cluster).describe(group_id)
        except KafkaError as error:
            code = 1
            warn(f"\nError: Consumer group '{group_id}': {sentence_of(error)}")
            continue
        if values.output == "text":
            _note_state(group)
        shown.append(await _one(cluster, values, group))
    if values.output == "json":
        print_json(shown)
    return code


def _note_state(group: GroupInfo) -> None:
    if group.state == "Empty":
        warn(f"\nConsumer group '{group.id}' has no active members.")
    elif group.state in _REBALANCING:
        warn(f"\nWarning: Consumer group '{group.id}' is rebalancing.")


async def _one(cluster: Cluster, values: Values, group: GroupInfo) -> dict[str, Any]:
    head = {"group": group.id, "state": group.state, "type": group.kind}
    if values.members:
        if values.output == "text":
            _print_members(group, is_verbose=values.verbose)
        return head | {"members": [_member_json(member) for member in group.members]}
    if values.state is not None:
        node = cluster.view.nodes[group.coordinator]
        coordinator = f"{node.host}:{node.port}  ({node.id})"
        if values.output == "text":
            _print_state(group, coordinator, is_verbose=values.verbose)
        return head | {
            "coordinator": {"id": node.id, "host": node.host, "port": node.port},
            "assignmentStrategy": group.assignor,
            "members": len(group.members),
            "groupEpoch": group.group_epoch,
            "targetAssignmentEpoch": group.target_epoch,
        }
    rows = await group_lags(cluster, group)
    if values.output == "text" and rows:
        _print_offsets(group, rows, is_verbose=values.verbose)
    return head | {"offsets": [lag_json(row) for row in rows]}


# offsets


def _print_offsets(group: GroupInfo, rows: list[GroupLag], *, is_verbose: bool) -> None:
    header = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG",
              "CONSUMER-ID", "HOST", "CLIENT-ID"]  # fmt: skip
    if is_verbose:
        header.insert(3, "LEADER-EPOCH")
    cells = []
    for row in rows:
        line: list[str | int | None] = [
            group.id,
            row.topic,
            row.partition,
            row.offset,
            row.end,
            row.lag,
        ]
        if is_verbose:
            line.insert(3, row.leader_epoch)
        member = row.member
        line += [member.id, member.host, member.client_id] if member else [None, None, None]
        cells.append([_MISSING if cell is None else str(cell) for cell in line])
    least = dict.fromkeys(header, 15) | {"PARTITION": 10, "CLIENT-ID": 0}
    fixed = {"PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"}
    widths = [
        least[name]
        if name in fixed or name == "CLIENT-ID"
        else max([least[name], *(len(line[i]) for line in cells)])
        for i, name in enumerate(header)
    ]
    print()
    for texts in [header, *cells]:
        print(" ".join(f"{text:<{width}}" for text, width in zip(texts, widths, strict=True)))


# members and state


def _print_members(group: GroupInfo, *, is_verbose: bool) -> None:
    has_static = any(member.instance_id for member in group.members)
    header = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    least = [15, 15, 15, 15, 15]
    if has_static:
        header.insert(2, "GROUP-INSTANCE-ID")
        least.insert(2, 17)
    is_mixed = {False, True} <= {member.is_upgraded for member in group.members}
    if is_verbose:
        header += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        least += [15, 20, 15, 20]
    if is_verbose and is_mixed:
        header.append("UPGRADED")
        least.append(0)
    cells = [
        _member_cells(group, member, has_static=has_static)
        + (_epoch_cells(group, member) if is_verbose else [])
        for member in group.members
    ]
    if is_verbose and is_mixed:
        for line, member in zip(cells, group.members, strict=True):
            line.append(str(bool(member.is_upgraded)).lower())
    # The last column of a migrating group is not padded.
    padded = len(header) - int(is_verbose and is_mixed)
    widths = [max([least[i], *(len(line[i]) for line in cells)]) for i in range(padded)]
    widths += [0] * (len(header) - padded)
    print()
    for line in [header, *cells]:
        text = " ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        print(text if is_verbose else text + " ")


def _member_cells(group: GroupInfo, member: GroupMember, *, has_static: bool) -> list[str]:
    line = [group.id, member.id, member.host, member.client_id, str(len(member.assignment))]
    if has_static:
        line.insert(2, member.instance_id or "")
    return line


def _epoch_cells(group: GroupInfo, member: GroupMember) -> list[str]:
    return [
        _or_missing(member.epoch),
        _assignment_text(member.assignment) or _MISSING,
        _or_missing(group.target_epoch),
        _assignment_text(member.target) or _MISSING,
    ]


def _or_missing(number: int | None) -> str:
    return _MISSING if number is None else str(number)


def _assignment_text(assignment: Iterable[tuple[str, int]]) -> str:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(assignment):
        topics.setdefault(topic, []).append(index)
    return ";".join(f"{topic}:{','.join(map(str, many))}" for topic, many in topics.items())


def _member_json(member: GroupMember) -> dict[str, Any]:
    return {
        "consumerId": member.id,
        "groupInstanceId": member.instance_id,
        "host": member.host,
        "clientId": member.client_id,
        "assignment": [{"topic": topic, "partition": i} for topic, i in member.assignment],
        "epoch": member.epoch,
        "target": [{"topic": topic, "partition": i} for topic, i in member.target],
        "upgraded": member.is_upgraded,
    }


def _print_state(group: GroupInfo, coordinator: str, *, is_verbose: bool) -> None:
    if group.state == "Dead":
        raise CommandError(f"consumer group '{group.id}' does not exist")
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    line = [group.id, coordinator, group.assignor or _MISSING, group.state, str(len(group.members))]
    widths = [max(15, len(group.id)), max(25, len(coordinator)), 20, 20, 0]
    if is_verbose:
        header[4:4] = ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        line[4:4] = [_or_missing(group.group_epoch), _or_missing(group.target_epoch)]
        widths[4:4] = [15, 25]
    print()
    for cells in (header, line):
        print(" ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)))
