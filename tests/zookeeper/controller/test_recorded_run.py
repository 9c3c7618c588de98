"""A run of three Kafka 3.9.2 brokers, step by step: our controller writes and sends the same.

`recorded_run.txt` has, for each step, the guarded writes of Kafka's controller (ZooKeeper's
transaction log) and the requests that each broker received (its request log). Compared are the
writes of each znode in their order, and the requests to each broker in their order.
`ALLOWED` lists the brokers that received fewer requests, with the reason.

Kafka's order among znodes and brokers is that of its hash tables, so it is not compared.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkraft.zookeeper.controller import events
from sparkraft.zookeeper.controller.active import Active, Settings
from sparkraft.zookeeper.controller.controller import Controller
from sparkraft.zookeeper.controller.requests import (
    ControlRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from sparkraft.zookeeper.controller.values import IsrChangeRequest, LeaderAndIsr
from sparkraft.zookeeper.requests import Create, Delete
from tests.zookeeper.controller.cluster import NAMES, Cluster

RECORDED = Path(__file__).with_name("recorded_run.txt")
T1_ID, T2_ID = "tCd6H9mrR6y44P05yz6EbQ", "NbInA3kcQ42C_M5gngViiA"
T3_ID = "SNa8nB0mTbSVyzDERrVtEA"
T3 = [("t3", partition) for partition in range(3)]

ALLOWED = {
    ("broker 2 shuts down", 2): "its process ended before it had handled the last three requests",
}


class Recording(Cluster):
    """Znodes of the run, and the controller that rules now."""

    def __init__(self) -> None:
        super().__init__()
        self.set("/controller_epoch", b"0")
        self.rule(1)
        for path in ("/latest_producer_id_block", "/admin/x"):
            self.make(path)

    def rule(self, broker: int) -> None:
        self.active = Active(Settings(node_id=broker))
        self.controller = Controller(self.active)

    def handle(self, event: events.Event) -> None:
        self.run(self.controller.handle(event, 0))

    def start(self, broker: int, epoch: int) -> None:
        self.znodes.zxid = epoch - 1
        self.register(broker)

    def end(self, broker: int) -> None:
        self.znodes.apply(Delete(path=f"/brokers/ids/{broker}"), 0, 0)

    def alter(self, broker: int, at: tuple[str, int], *isr: int) -> None:
        leadership = self.context.leaderships[at].state
        request = IsrChangeRequest(
            broker=broker,
            broker_epoch=self.context.brokers[broker].epoch,
            version=3,
            states={at: LeaderAndIsr(broker, isr, leadership.leader_epoch,
                                     leadership.partition_epoch)},
        )  # fmt: skip
        self.handle(events.AlterPartition(request))

    def deleted(self, broker: int, *partitions: tuple[str, int]) -> None:
        self.handle(events.StopReplicaResponded(broker, 0, dict.fromkeys(partitions, 0)))


def boot(run: Recording) -> None:
    run.start(1, 25)
    run.handle(events.Reelect())


def broker_2_starts(run: Recording) -> None:
    run.start(2, 68)
    run.handle(events.BrokersChanged())


def topics_are_created(run: Recording) -> None:
    run.topic("t1", {0: [1, 2], 1: [2, 1], 2: [1, 2]}, topic_id=T1_ID)
    run.handle(events.TopicsChanged())
    run.topic("t2", {0: [2]}, topic_id=T2_ID)
    run.make("/config/topics/t2", b'{"version":1,"config":{}}')
    run.handle(events.TopicsChanged())


def broker_3_starts(run: Recording) -> None:
    run.start(3, 184)
    run.handle(events.BrokersChanged())


def t1_0_is_reassigned(run: Recording) -> None:
    run.handle(events.AlterReassignments({("t1", 0): (3, 2)}))


def broker_3_is_in_sync(run: Recording) -> None:
    run.alter(1, ("t1", 0), 1, 2, 3)


def broker_2_shuts_down(run: Recording) -> None:
    run.handle(events.ControlledShutdown(2, 68))
    run.end(2)
    run.handle(events.BrokersChanged())


def broker_2_returns(run: Recording) -> None:
    run.start(2, 250)
    run.handle(events.BrokersChanged())
    run.alter(1, ("t1", 2), 1, 2)
    run.alter(3, ("t1", 0), 3, 2)
    run.alter(1, ("t1", 1), 1, 2)


def preferred_leaders_are_elected(run: Recording) -> None:
    run.handle(events.ElectLeaders(None, unclean=False))


def znodes_of_old_tools(run: Recording) -> None:
    run.make("/admin/preferred_replica_election",
             b'{"version":1,"partitions":[{"topic":"t1","partition":2}]}')  # fmt: skip
    run.handle(events.PreferredElectionsCreated())
    wanted = [{"topic": "t1", "partition": 1, "replicas": [3, 1]},
              {"topic": "nope", "partition": 0, "replicas": [1]}]  # fmt: skip
    run.make("/admin/reassign_partitions",
             json.dumps({"version": 1, "partitions": wanted}).encode())  # fmt: skip
    run.handle(events.ReassignmentsCreated())
    run.alter(2, ("t1", 1), 1, 2, 3)


def t3_is_created(run: Recording) -> None:
    run.topic("t3", {0: [3, 1], 1: [3, 1], 2: [3, 1]}, topic_id=T3_ID)
    run.make("/config/topics/t3", b'{"version":1,"config":{}}')
    run.handle(events.TopicsChanged())


def a_directory_of_broker_3_fails(run: Recording) -> None:
    notification = b'{"version":1,"broker":3,"event":1}'
    path = "/log_dir_event_notification/log_dir_event_"
    run.znodes.apply(Create(path=path, data=notification, sequential=True), 0, 0)
    run.handle(events.LogDirEvents())
    errors = {("t1", 0): 11, ("t1", 1): 56, ("t3", 0): 56, ("t3", 1): 11, ("t3", 2): 11}
    run.handle(events.LeaderAndIsrResponded(3, 0, errors))


def t3_is_deleted(run: Recording) -> None:
    run.make("/admin/delete_topics/t3")
    run.handle(events.DeletionsChanged())
    run.deleted(3, *T3[1:])
    run.deleted(1, *T3)


def t2_is_deleted(run: Recording) -> None:
    run.make("/admin/delete_topics/t2")
    run.handle(events.DeletionsChanged())
    run.deleted(2, ("t2", 0))


def broker_3_is_killed(run: Recording) -> None:
    run.end(3)
    run.handle(events.BrokersChanged())


def broker_3_returns(run: Recording) -> None:
    run.start(3, 350)
    run.handle(events.BrokersChanged())
    run.alter(1, ("t1", 1), 1, 3)
    run.alter(2, ("t1", 0), 2, 3)
    run.deleted(3, ("t3", 0))


def broker_1_is_killed(run: Recording) -> None:
    run.end(1)
    run.znodes.apply(Delete(path="/controller"), 0, 0)
    run.rule(3)
    run.handle(events.Reelect())


STEPS: list[tuple[str, Callable[[Recording], None]]] = [
    ("boot", boot),
    ("broker 2 starts", broker_2_starts),
    ("t1 and t2 are created", topics_are_created),
    ("broker 3 starts", broker_3_starts),
    ("t1-0 is reassigned", t1_0_is_reassigned),
    ("broker 3 is in sync", broker_3_is_in_sync),
    ("broker 2 shuts down", broker_2_shuts_down),
    ("broker 2 returns", broker_2_returns),
    ("preferred leaders are elected", preferred_leaders_are_elected),
    ("znodes of old tools", znodes_of_old_tools),
    ("t3 is created", t3_is_created),
    ("a directory of broker 3 fails", a_directory_of_broker_3_fails),
    ("t3 is deleted", t3_is_deleted),
    ("t2 is deleted", t2_is_deleted),
    ("broker 3 is killed", broker_3_is_killed),
    ("broker 3 returns", broker_3_returns),
    ("broker 1 is killed", broker_1_is_killed),
]


def dots(ids) -> str:
    return ".".join(map(str, ids)) or "-"


def described(request: ControlRequest) -> str:
    """A request as a line of the recording, without its receiver."""
    line = f"{NAMES[type(request)]} broker_epoch={request.broker_epoch}"
    if isinstance(request, UpdateMetadataRequest):
        line += f" live={dots(broker.id for broker in request.live_brokers)}"
    return " ".join([line, *sorted(partitions_of(request))])


def partitions_of(request: ControlRequest) -> list[str]:
    lines = []
    for (topic, partition), each in request.partitions.items():
        name = f"{topic}-{partition}:"
        if isinstance(request, StopReplicaRequest):
            lines.append(f"{name}epoch={each.leader_epoch}" + (",delete" if each.delete else ""))
            continue
        is_lead = isinstance(request, LeaderAndIsrRequest)
        replicas = each.assignment.replicas if is_lead else each.replicas
        state, by = each.leadership
        fields = [f"by={by}", f"leader={state.leader}", f"epoch={state.leader_epoch}",
                  f"isr={dots(state.isr)}", f"version={state.partition_epoch}",
                  f"replicas={dots(replicas)}"]  # fmt: skip
        if is_lead:
            fields += [f"adding={dots(each.assignment.adding)}"] * bool(each.assignment.adding)
            removing = each.assignment.removing
            fields += [f"removing={dots(removing)}"] * bool(removing)
            fields += ["new"] * each.is_new
        else:
            fields += [f"offline={dots(each.offline)}"] * bool(each.offline)
        lines.append(name + ",".join(fields))
    return lines


def parse(lines: list[str]) -> tuple[dict[str, list[str]], dict[int, list[str]]]:
    """The writes by znode, and the requests by broker."""
    writes: dict[str, list[str]] = {}
    sends: dict[int, list[str]] = {}
    for line in lines:
        word, rest = line.split(" ", 1)
        if word == "send":
            broker, request = rest.split(" ", 1)
            sends.setdefault(int(broker), []).append(request)
        else:
            path, _, data = rest.partition(" ")
            writes.setdefault(path, []).append(f"{word} {data}".rstrip())
    return writes, sends


def data_of(operation: object) -> str:
    return (getattr(operation, "data", None) or b"").decode()


@pytest.fixture(scope="module")
def recorded() -> dict[str, list[str]]:
    steps: dict[str, list[str]] = {}
    for line in RECORDED.read_text().splitlines():
        if line.startswith("== "):
            steps[line[3:]] = []
        else:
            list(steps.values())[-1].append(line)
    return steps


@pytest.fixture(scope="module")
def replayed() -> dict[str, list[str]]:
    run, steps = Recording(), {}
    for name, act in STEPS:
        run.written.clear()
        run.sent.clear()
        act(run)
        written = [op for op in run.written if not op.path.startswith("/controller")]
        lines = [f"{type(op).__name__} {op.path} {data_of(op)}".rstrip() for op in written]
        steps[name] = lines + [f"send {each.broker} {described(each)}" for each in run.sent]
    return steps


@pytest.mark.parametrize("step", [name for name, _ in STEPS])
def test_a_step_writes_and_sends_what_kafka_does(step, recorded, replayed):
    writes, sends = parse(replayed[step])
    expected_writes, expected_sends = parse(recorded[step])
    assert writes == expected_writes
    for broker in {each for name, each in ALLOWED if name == step}:
        sends[broker] = sends[broker][: len(expected_sends[broker])]
    assert sends == expected_sends


def test_all_steps_are_replayed(recorded):
    assert list(recorded) == [name for name, _ in STEPS]
