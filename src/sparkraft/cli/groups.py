"""`groups --list`: groups of all types, as `kafka-groups.sh`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.errors import UsageError
from sparkraft.cli.options import Options, Values
from sparkraft.cli.session import connected, print_json, run
from sparkraft.client.groups import Groups

if TYPE_CHECKING:
    from sparkraft.client.groups import ListedGroup

_TYPES = ("classic", "consumer", "share", "streams")
_ONE_TYPE = ("--consumer", "--share", "--streams")
_WIDTH_MIN = 20


def main(argv: list[str]) -> int:
    """List groups."""
    options = Options("groups", "Lists groups of all types.")
    options.connection()
    options.flag("--list", "list groups")
    options.value("--group-type", about="only this type: classic, consumer, share or streams")
    options.value("--protocol", about="only this protocol type, such as consumer or connect")
    options.flag("--consumer", "only groups of consumers: KIP-848's, classic ones, offsets alone")
    options.flag("--share", "only share groups")
    options.flag("--streams", "only streams groups")
    options.output()
    values = options.parse(argv)
    _check(values)
    return run(_main(values))


def _check(values: Values) -> None:
    if not values.list:
        raise UsageError("give --list")
    if values.group_type is not None and values.group_type.lower() not in _TYPES:
        raise UsageError(f"--group-type is one of {', '.join(_TYPES)}, not {values.group_type!r}")
    given = [name for name in _ONE_TYPE if getattr(values, name[2:])]
    if given and (len(given) > 1 or values.group_type or values.protocol is not None):
        raise UsageError(f"{given[0]} goes with no other filter")


async def _main(values: Values) -> int:
    async with connected(values, client_id="groups-tool") as cluster:
        groups = [group for group in await Groups(cluster).list() if _fits(group, values)]
    if values.output == "json":
        print_json(
            [{"group": g.id, "type": g.type_name, "protocol": g.protocol_type} for g in groups]
        )
        return 0
    rows = [(group.id, group.type_name, group.protocol_type) for group in groups]
    width = max([_WIDTH_MIN, *(len(cell) for row in rows for cell in row)])
    print(" ".join(f"{name:<{width}}" for name in ("GROUP", "TYPE", "PROTOCOL")))
    for row in rows:
        print("".join(f"{cell:<{width}} " for cell in row))
    return 0


def _fits(group: ListedGroup, values: Values) -> bool:
    kind = group.kind.lower()
    if values.group_type is not None:
        protocol = group.protocol_type if values.protocol is None else values.protocol
        return kind == values.group_type.lower() and group.protocol_type == protocol
    if values.protocol is not None:
        return bool(group.protocol_type == values.protocol)
    if values.consumer:
        return group.protocol_type in {"", "consumer"} or kind == "consumer"
    if values.share or values.streams:
        return kind == ("share" if values.share else "streams")
    return True
