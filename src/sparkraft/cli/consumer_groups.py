"""`consumer-groups`: list, describe, reset, delete consumer groups, as `kafka-consumer-groups.sh`.

Describing is in `group_describe`, resetting in `group_reset`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.cli import group_describe, group_reset
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options, Values, exactly_one, only_with
from sparkraft.cli.session import connected, print_json, run, warn
from sparkraft.client.admin import Admin
from sparkraft.client.errors import sentence_of
from sparkraft.client.groups import Groups

if TYPE_CHECKING:
    from sparkraft.client.cluster import Cluster
    from sparkraft.client.groups import ListedGroup

_ACTIONS = ("--list", "--describe", "--delete", "--reset-offsets", "--delete-offsets")
_STATES = {
    state.lower().replace("_", ""): state
    for state in (
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
        "Empty",
        "Assigning",
        "Reconciling",
    )
}
_KINDS = {"classic": "Classic", "consumer": "Consumer"}


def _options() -> Options:
    options = Options(
        "consumer-groups", "Lists and describes consumer groups, moves and deletes their offsets."
    )
    options.connection(required=False)
    options.flag("--list", "list groups")
    options.flag("--describe", "show offsets and lag, members or state")
    options.flag("--delete", "delete groups that have no members")
    options.flag("--reset-offsets", "move the offsets of a group that has no members")
    options.flag("--delete-offsets", "delete a group's offsets of --topic")
    options.value("--validate-regex", about="say whether this is a regular expression")
    options.values("--group", about="the group; repeatable")
    options.flag("--all-groups", "every consumer group")
    options.values("--topic", about="a topic, or topic:0,1,2; repeatable")
    options.flag("--all-topics", "every topic the group has offsets of")
    options.flag("--members", "with --describe: the members")
    options.flag("--offsets", "with --describe: offsets and lag (default)")
    options.value(
        "--state",
        about="with --describe: the group's state; with --list: states, and only these if given",
        nargs="?",
        const="",
    )
    options.value(
        "--type", about="with --list: types, and only these if given", nargs="?", const=""
    )
    options.flag("--verbose", "with --describe: more columns")
    group_reset.add_options(options)
    options.value("--timeout", about="ms to wait for each call", type=int, default=30_000)
    options.output()
    return options


def main(argv: list[str]) -> int:
    """Do one action."""
    values = _options().parse(argv)
    if values.validate_regex is not None:
        return _validate_regex(values.validate_regex)
    action = exactly_one(values, _ACTIONS)
    _check(values, action)
    return run(_main(values, action))


def _check(values: Values, action: str) -> None:
    if not values.bootstrap_server and not values.command_config:
        raise UsageError("missing --bootstrap-server")
    only_with(values, ["--members", "--offsets", "--verbose"], "--describe")
    only_with(values, group_reset.OPTION_NAMES, "--reset-offsets")
    if action != "--list" and not values.group and not values.all_groups:
        raise UsageError(f"{action} needs --group or --all-groups")
    if values.group and values.all_groups:
        raise UsageError("give --group or --all-groups, not both")
    if action == "--delete-offsets" and (len(values.group) != 1 or not values.topic):
        raise UsageError("--delete-offsets needs one --group and --topic")
    if action == "--delete" and values.topic:
        raise UsageError("--delete deletes whole groups; for topics there is --delete-offsets")
    if action == "--reset-offsets":
        group_reset.check(values)


def _validate_regex(text: str) -> int:
    """Say whether coordinators take `text` as a pattern (RE2); 1 if they do not."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0]
        reason = reason.decode() if isinstance(reason, bytes) else str(reason)
        print(f"The regular expression `{text}` is invalid: {reason}.")
        return 1
    print(f"The regular expression `{text}` is valid.")
    return 0


async def _main(values: Values, action: str) -> int:
    async with connected(values, client_id="consumer-groups") as cluster:
        cluster.api_timeout_ms = values.timeout
        match action:
            case "--list":
                return await _list(cluster, values)
            case "--describe":
                return await group_describe.describe(cluster, values, await _ids(cluster, values))
            case "--delete":
                return await _delete(cluster, values)
            case "--reset-offsets":
                return await group_reset.reset(cluster, values, await _ids(cluster, values))
            case _:
                return await _delete_offsets(cluster, values)


async def _groups(cluster: Cluster, *, states: list[str], kinds: list[str]) -> list[ListedGroup]:
    """Groups of consumers: classic ones of that protocol or with offsets only, and KIP-848's."""
    return [
        group
        for group in await Groups(cluster).list(states=states, kinds=kinds)
        if group.protocol_type in {"", "consumer"} and group.kind.lower() in {"", *_KINDS}
    ]


async def _ids(cluster: Cluster, values: Values) -> list[str]:
    if not values.all_groups:
        return list(dict.fromkeys(values.group))
    return [group.id for group in await _groups(cluster, states=[], kinds=[])]


def _wanted(text: str | None, known: dict[str, str], option: str) -> list[str]:
    found = []
    for word in (text or "").split(","):
        key = word.strip().lower().replace("_", "")
        if key and key not in known:
            raise UsageError(f"{option} knows {', '.join(known.values())}, not {word.strip()!r}")
        if key:
            found.append(known[key])
    return found


async def _list(cluster: Cluster, values: Values) -> int:
    states = _wanted(values.state, _STATES, "--state")
    kinds = _wanted(values.type, _KINDS, "--type")
    groups = await _groups(cluster, states=states, kinds=kinds)
    if values.output == "json":
        print_json(
            [
                {"group": g.id, "type": g.kind, "state": g.state, "protocolType": g.protocol_type}
                for g in groups
            ]
        )
        return 0
    if values.state is None and values.type is None:
        for group in groups:
            print(group.id)
        return 0
    width = max([15, *(len(group.id) for group in groups)]) + 10
    rows = [("GROUP", "TYPE", "STATE")]
    rows += [(g.id, _KINDS.get(g.kind.lower(), g.kind or "Unknown"), g.state) for g in groups]
    for name, kind, state in rows:
        line = f"{name:<{width}}"
        line += f" {kind:<20}" if values.type is not None else ""
        line += f" {state:<20}" if values.state is not None else ""
        print(line)
    return 0


async def _delete(cluster: Cluster, values: Values) -> int:
    outcome = await Groups(cluster).delete(await _ids(cluster, values))
    done = [group for group, error in outcome.items() if error is None]
    failed = {group: error for group, error in outcome.items() if error is not None}
    if values.output == "json":
        print_json(
            [{"group": g, "error": sentence_of(e) if e else None} for g, e in outcome.items()]
        )
        return int(bool(failed))
    quoted = ", ".join(f"'{group}'" for group in done)
    if not failed:
        print(f"Deletion of requested consumer groups ({quoted}) was successful.")
        return 0
    print("\nError: Deletion of some consumer groups failed:")
    for group, error in failed.items():
        print(f"* Group '{group}' could not be deleted due to: {sentence_of(error)}")
    if done:
        print(f"\nThese consumer groups were deleted successfully: {quoted}")
    return 1


async def _delete_offsets(cluster: Cluster, values: Values) -> int:
    group = values.group[0]
    wanted = await group_reset.partitions_of(Admin(cluster), values.topic)
    try:
        outcome = await Groups(cluster).delete_offsets(group, wanted)
    except KafkaError as error:
        raise CommandError(f"group {group}: {sentence_of(error)}") from error
    failed = any(error is not None for error in outcome.values())
    if values.output == "json":
        print_json(
            [
                {"topic": tp[0], "partition": tp[1], "error": error.code.name if error else None}
                for tp, error in sorted(outcome.items(), key=lambda entry: entry[0])
            ]
        )
        return int(failed)
    if failed:
        warn("\nError: Encountered some partition-level error, see the follow-up details.")
    else:
        print(f"Request succeeded for deleting offsets from group {group}.")
    width = max([15, *(len(topic) for topic, _ in outcome)])
    print(f"\n{'TOPIC':<{width}} {'PARTITION':<10} {'STATUS':<15}")
    for (topic, partition), refusal in sorted(outcome.items(), key=lambda entry: entry[0]):
        status = "Successful" if refusal is None else f"Error: {_reason(refusal)}"
        print(f"{topic:<{width}} {partition:<10} {status:<15}")
    return int(failed)


def _reason(error: KafkaError) -> str:
    if error.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        return "the group still reads this topic"
    return error.code.name
