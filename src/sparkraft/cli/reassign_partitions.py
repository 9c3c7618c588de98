"""`reassign-partitions`: moves partitions to other brokers, as `kafka-reassign-partitions.sh`.

--generate proposes a plan, --execute starts it, --verify reports its progress and removes its
throttles at the end, --cancel reverts it, --list shows ongoing reassignments, or those of an
earlier moment.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.moment_options import add_moment, moment_of, past_state
from sparkraft.cli.options import Options, Values, exactly_one, numbers
from sparkraft.cli.reassignment_tool import Tool, plural
from sparkraft.cli.session import connected, print_json, run
from sparkraft.client import reassignment_plans as plans
from sparkraft.client import reassignments
from sparkraft.client.errors import sentence_of
from sparkraft.client.leadership import LeadershipAdmin
from sparkraft.client.past.moves import reassignments_of
from sparkraft.client.reassignment_plans import name_of, names_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.reassignment_plans import Plan, Replica
    from sparkraft.client.values import Reassignment

_ACTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "--generate": (("--topics-to-move-json-file", "--broker-list"), ("--disable-rack-aware",)),
    "--execute": (
        ("--reassignment-json-file",),
        (
            "--additional",
            "--throttle",
            "--replica-alter-log-dirs-throttle",
            "--timeout",
            "--disallow-replication-factor-change",
        ),
    ),
    "--verify": (("--reassignment-json-file",), ("--preserve-throttles",)),
    "--cancel": (
        ("--reassignment-json-file",),
        ("--preserve-throttles", "--timeout", "--bootstrap-controller"),
    ),
    "--list": ((), ("--bootstrap-controller", "--at-offset", "--at-time")),
}
"""Action → options it needs, options it takes."""

_TIMEOUT_MS = 10_000
_MOVE_RETRY_MS = 100

_EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to "
    "override this and create a new partition assignment in addition to the existing one. The "
    "--additional flag can also be used to change the throttle by resubmitting the current "
    "reassignment."
)
_RUN_VERIFY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure "
    "the throttle is removed."
)


def main(argv: list[str]) -> int:
    """Do one of the five."""
    options = Options("reassign-partitions", "Moves partitions to other brokers or directories.")
    options.connection(controllers=True)
    options.flag("--generate", "propose a plan for topics on brokers; nothing is changed")
    options.flag("--execute", "start the plan in --reassignment-json-file")
    options.flag("--verify", "how far it is; at the end its throttles are removed")
    options.flag("--cancel", "return the partitions to their previous brokers")
    options.flag("--list", "the moves under way")
    _arguments(options)
    add_moment(options)
    options.output()
    values = options.parse(argv)
    action = exactly_one(values, _ACTIONS)
    _check_options(values, action)
    work = {
        "--generate": _generate,
        "--execute": _execute,
        "--verify": _verify,
        "--cancel": _cancel,
        "--list": _list,
    }[action]
    return run(_main(values, work))


def _arguments(options: Options) -> None:
    options.value("--reassignment-json-file", about="the plan", metavar="FILE")
    options.value(
        "--topics-to-move-json-file", about='{"topics": [{"topic": "foo"}]}', metavar="FILE"
    )
    options.value("--broker-list", about="brokers to move to, between commas")
    options.flag("--disable-rack-aware", "with --generate: leave racks out of account")
    options.value("--throttle", about="bytes per second between brokers", type=int)
    options.value(
        "--replica-alter-log-dirs-throttle",
        about="bytes per second between directories of a broker",
        type=int,
    )
    options.value("--timeout", about="ms to wait for moves of directories to begin", type=int)
    options.flag("--additional", "with --execute: besides what moves already")
    options.flag("--preserve-throttles", "leave throttles as they are")
    options.flag(
        "--disallow-replication-factor-change",
        "with --execute: refuse to change how many there are",
    )


def _check_options(values: Values, action: str) -> None:
    needed, taken = _ACTIONS[action]
    every = {name for both in _ACTIONS.values() for names in both for name in names}
    for name in sorted(every):
        value = getattr(values, name.lstrip("-").replace("-", "_"))
        given = value is not None and value is not False
        if given and name not in (*needed, *taken):
            raise UsageError(f"{name} does not go with {action}")
        if not given and name in needed:
            raise UsageError(f"{action} needs {name}")
    moment_of(values)


async def _main(values: Values, work: Any) -> int:
    async with connected(values, client_id="reassign-partitions-tool") as cluster:
        tool = Tool(LeadershipAdmin(cluster), values)
        told = await work(tool)
    if values.output == "json":
        print_json(told)
    return 0


# ---- the actions; each returns what --output json prints


async def _generate(tool: Tool) -> Any:
    values = tool.values
    brokers = numbers(values.broker_list, "--broker-list")
    if len(set(brokers)) != len(brokers):
        twice = sorted({b for b in brokers if brokers.count(b) > 1})
        raise CommandError(f"Broker list contains duplicate entries: {twice}")
    current = await reassignments.current_replicas(tool.admin, _topics_of(values))
    directories = await reassignments.directories_of(tool.admin, current)
    proposed = await _propose(tool, current, brokers)
    before = plans.as_plan_json(current, directories)
    after = plans.as_plan_json(proposed, {})
    tool.say(f"Current partition replica assignment\n{plans.one_line(before)}\n")
    tool.say(f"Proposed partition reassignment configuration\n{plans.one_line(after)}")
    return {"current": before, "proposed": after}


async def _propose(
    tool: Tool, current: Mapping[TopicPartition, list[int]], brokers: list[int]
) -> dict[TopicPartition, list[int]]:
    """Place each topic on these brokers, by the rules for new topics."""
    from sparkraft.controller.placement import UsableBroker, place_replicas
    from sparkraft.server.env import SystemEntropy

    def place(
        racks: list[tuple[int, str | None]], partitions: int, replication_factor: int
    ) -> list[list[int]]:
        placed = place_replicas(
            [UsableBroker(broker, rack, fenced=False) for broker, rack in racks],
            partitions=partitions,
            replication_factor=replication_factor,
            entropy=SystemEntropy(),
        )
        return list(placed)

    nodes = [n for n in (await tool.admin.describe_cluster()).nodes if n.id in brokers]
    use_racks = not tool.values.disable_rack_aware
    return plans.propose(current, nodes, place=place, use_racks=use_racks)


def _topics_of(values: Values) -> list[str]:
    path = values.topics_to_move_json_file
    return plans.parse_topics(Path(path).read_bytes(), source=path)


def _plan_of(values: Values) -> Plan:
    path = values.reassignment_json_file
    return plans.parse_plan(Path(path).read_bytes(), source=path)


async def _execute(tool: Tool) -> Any:
    values = tool.values
    plan = _plan_of(values)
    plans.check_plan(plan)
    ongoing = await tool.admin.reassignments()
    if ongoing and not values.additional:
        raise CommandError(_EXISTING)
    plans.check_known(plan, {node.id for node in (await tool.admin.describe_cluster()).nodes})
    everything = await reassignments.current_replicas(
        tool.admin, {topic for topic, _ in plan.replicas}
    )
    plans.check_existing(plan, everything)
    current = {tp: everything[tp] for tp in plan.replicas}
    rollback = plans.as_plan_json(current, await reassignments.directories_of(tool.admin, current))
    tool.say(
        f"Current partition replica assignment\n\n{plans.one_line(rollback)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    await _throttle(tool, plan, ongoing, current)
    outcome = await tool.admin.reassign(
        plan.replicas,
        may_change_replication_factor=not values.disallow_replication_factor_change,
    )
    _fail_for("Error reassigning partition(s):", outcome)
    tool.say(
        f"Successfully started partition reassignment{plural(plan.replicas)} for "
        f"{names_of(plan.replicas)}"
    )
    await _move_directories(tool, plan.directories)
    return {"rollback": rollback, "started": [name_of(tp) for tp in sorted(plan.replicas)]}


def _fail_for(what: str, outcome: Mapping[TopicPartition, KafkaError | None]) -> None:
    failed = {tp: error for tp, error in sorted(outcome.items()) if error is not None}
    if failed:
        lines = [f"{name_of(tp)}: {sentence_of(error)}" for tp, error in failed.items()]
        raise CommandError("\n".join([what, *lines]))


async def _throttle(
    tool: Tool,
    plan: Plan,
    ongoing: Mapping[TopicPartition, Reassignment],
    current: Mapping[TopicPartition, list[int]],
) -> None:
    rate, directory_rate = tool.values.throttle, tool.values.replica_alter_log_dirs_throttle
    rate = -1 if rate is None else rate
    directory_rate = -1 if directory_rate is None else directory_rate
    if max(rate, directory_rate) >= 0:
        tool.say(_RUN_VERIFY)
    if rate >= 0:
        moves = plans.moves_of(ongoing, plan.replicas, current)
        await reassignments.alter(tool.admin, plans.topic_throttles(moves))
        await reassignments.alter(tool.admin, plans.broker_throttles(moves, rate))
        tool.say(f"The inter-broker throttle limit was set to {rate} B/s")
    if directory_rate >= 0:
        await reassignments.alter(tool.admin, plans.directory_throttles(plan, directory_rate))
        tool.say(f"The replica-alter-dir throttle limit was set to {directory_rate} B/s")


async def _move_directories(tool: Tool, wanted: Mapping[Replica, str]) -> None:
    """Ask until each has begun: a replica that is still on its way can't move yet."""
    left = dict(wanted)
    timeout_ms = _TIMEOUT_MS if tool.values.timeout is None else tool.values.timeout
    deadline = time.monotonic() + timeout_ms / 1000
    while left:
        outcome = await tool.admin.move_replicas(left)
        for replica in sorted(left, key=lambda r: (r[1], r[0])):
            if outcome.get(replica) is ErrorCode.NONE:
                tp, broker = replica
                tool.say(
                    f"Successfully started moving log directory to {left.pop(replica)} for "
                    f"replica {name_of(tp)} with broker {broker} "
                )
        if left and time.monotonic() >= deadline:
            names = ",".join(f"{name_of(tp)}-{broker}" for tp, broker in sorted(left))
            raise CommandError(
                f"Timed out before log directory move{plural(left)} could be started for: {names}"
            )
        if left:
            await asyncio.sleep(_MOVE_RETRY_MS / 1000)


async def _verify(tool: Tool) -> Any:
    plan = _plan_of(tool.values)
    ongoing = await tool.admin.reassignments()
    topics = {topic for topic, _ in plan.replicas}
    told = await tool.admin.describe_topics(topics)
    tool.say("Status of partition reassignment:")
    states: dict[TopicPartition, str] = {}
    for tp in sorted(plan.replicas):
        info = told[tp[0]]
        partition = None if isinstance(info, KafkaError) else info.partitions.get(tp[1])
        replicas = [] if partition is None else list(partition.replicas)
        states[tp] = reassignments.state_of(tp, plan.replicas[tp], replicas, ongoing)
        tool.say(reassignments.state_sentence(tp, states[tp], plan.replicas[tp], replicas))
    moves = await reassignments.move_states(tool.admin, plan.directories)
    tool.say("\n".join(sentence for _, sentence in moves.values()))
    moving = any(state == "active" for state, _ in moves.values())
    if not ongoing and not moving and not tool.values.preserve_throttles:
        await tool.clear_throttles(plan.replicas)
    return {
        "partitions": [{"partition": name_of(tp), "state": s} for tp, s in states.items()],
        "directories": [
            {"partition": name_of(tp), "broker": broker, "state": state}
            for (tp, broker), (state, _) in moves.items()
        ],
        "anyOngoing": bool(ongoing) or moving,
    }


async def _cancel(tool: Tool) -> Any:
    plan = _plan_of(tool.values)
    ongoing = await tool.admin.reassignments(plan.replicas)
    if ongoing:
        outcome = await tool.admin.reassign(dict.fromkeys(ongoing))
        _fail_for(f"Error cancelling partition reassignment{plural(ongoing)} for:", outcome)
        names = names_of(ongoing)
        tool.say(f"Successfully cancelled partition reassignment{plural(ongoing)} for: {names}")
    else:
        tool.say("None of the specified partition reassignments are active.")
    moves = await reassignments.move_states(tool.admin, plan.directories)
    active = {replica for replica, (state, _) in moves.items() if state == "active"}
    if active:
        current = await reassignments.directories_of(tool.admin, plan.replicas)
        await _move_directories(tool, {replica: current[replica] for replica in sorted(active)})
    else:
        tool.say("None of the specified partition moves are active.", end="")
    if not tool.values.preserve_throttles:
        await tool.clear_throttles(plan.replicas)
    return {
        "cancelled": [name_of(tp) for tp in sorted(ongoing)],
        "movedBack": [f"{name_of(tp)}-{broker}" for tp, broker in sorted(active)],
    }


async def _list(tool: Tool) -> Any:
    moment = moment_of(tool.values)
    if moment is None:
        ongoing = await tool.admin.reassignments()
    else:
        state, _ = await past_state(tool.admin.cluster, moment)
        ongoing = reassignments_of(state)
    lines = []
    for tp, r in sorted(ongoing.items()):
        parts = [("replicas", r.replicas), ("adding", r.adding), ("removing", r.removing)]
        told = " ".join(f"{what}: {','.join(map(str, ids))}." for what, ids in parts if ids)
        lines.append(f"{name_of(tp)}: {told}")
    if lines:
        tool.say("\n".join(["Current partition reassignments:", *lines]))
    else:
        tool.say("No partition reassignments found.")
    return [
        {
            "topic": tp[0],
            "partition": tp[1],
            "replicas": list(r.replicas),
            "adding": list(r.adding),
            "removing": list(r.removing),
        }
        for tp, r in sorted(ongoing.items())
    ]
