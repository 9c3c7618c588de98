"""The checks of ZooKeeper mode whose planted bugs take long to show: Z2, Z4 and Z8."""

import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.server.zookeeper.control import ControllerRequests
from sparkraft.simulation.checks.znode_image import image_of_znodes, state_path
from sparkraft.simulation.checks.zookeeper_checks import (
    CONTROLLER,
    EPOCH,
    NO_EPOCH,
    ZooKeeperChecks,
)
from sparkraft.simulation.scenarios import zookeeper as scenario
from sparkraft.simulation.world.loop import CURRENT
from sparkraft.simulation.world.violation import Violation
from sparkraft.zookeeper.requests import Check
from tests.mutants.mutant_seeds import by_settings, settings_for
from tests.mutants.registry import CASES
from tests.simulation.zookeeper_worlds import Tree, World, require
from tests.zookeeper.broker.parts import BROKER_EPOCH, lead, stop

PLANTED = by_settings(case for case in CASES if case.mutant.workload == "zookeeper")
STATE = state_path("t", 0)


class NoAddresses:
    """Checks no addresses (Z11)."""

    def on_written(self, *_: Any) -> None: ...

    def differences(self, _: Any) -> tuple[str, ...]:
        return ()


class Cluster(Tree):
    """Two brokers, one of which is elected; and the checker of their writes and requests."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.checks = ZooKeeperChecks(self.world, require, self.znodes)  # type: ignore[arg-type]
        self.checks.addresses = NoAddresses()  # type: ignore[assignment]
        self.write(EPOCH, b"0")

    def elect(self, broker: int, session: int) -> int:
        """Return the version of /controller_epoch that the election writes."""
        if self.has(CONTROLLER):
            self.delete(CONTROLLER)
        epoch = int(self.znodes.get(EPOCH).data) + 1
        created = self.write(CONTROLLER, {"version": 2, "brokerid": broker}, session)
        raised = self.write(EPOCH, b"%d" % epoch)
        self.checks.on_written(f"n{broker}", session, (created, raised))
        return self.znodes.get(EPOCH).version

    def write_state(self, writer: int, session: int, version: int) -> None:
        """A partition's state is written in a session, under a version of /controller_epoch."""
        epoch = int(self.znodes.get(EPOCH).data)
        self.write("/brokers/topics/t", {"partitions": {"0": [1, 2]}})
        state = {"leader": 1, "leader_epoch": 0, "isr": [1, 2], "controller_epoch": epoch}
        write = self.write(STATE, state)
        self.checks.on_written(
            f"n{writer}", session, (Check(path=EPOCH, version=version), write)
        )  # fmt: skip


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


# ---- Z2


def test_the_session_of_the_election_writes_under_its_version(cluster: Cluster) -> None:
    version = cluster.elect(1, session=7)
    cluster.write_state(1, 7, version)
    version = cluster.elect(2, session=8)
    cluster.write_state(2, 8, version)


@pytest.mark.parametrize(
    ("writer", "session"), [(2, 8), (1, 9)], ids=["another broker", "its next session"]
)
def test_another_session_must_not_write_under_that_version(
    cluster: Cluster, writer: int, session: int
) -> None:
    version = cluster.elect(1, session=7)
    with pytest.raises(Violation, match="Z2"):
        cluster.write_state(writer, session, version)


def test_a_former_controller_must_not_write_under_the_newest_version(cluster: Cluster) -> None:
    """KAFKA-6082, as planted in `any-version-of-the-epoch-guards`."""
    cluster.elect(1, session=7)
    newest = cluster.elect(2, session=8)
    with pytest.raises(Violation, match="Z2"):
        cluster.write_state(1, 7, newest)


# ---- Z4


@pytest.fixture
def obey(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    """Broker 1, registered with epoch 50, obeys any request."""
    monkeypatch.setattr(ControllerRequests, "_begin", lambda *_: None)
    broker: Any = SimpleNamespace(_broker_epoch=SimpleNamespace(value=BROKER_EPOCH))
    token = CURRENT.set(cluster.world.brokers[0].incarnation)
    with cluster.checks.watching():
        yield lambda request: ControllerRequests._begin(broker, request, type(request).__name__)
    CURRENT.reset(token)


def test_requests_of_elected_controllers_are_obeyed(
    cluster: Cluster, obey: Callable[[Any], None]
) -> None:
    cluster.elect(2, session=8)
    for broker_epoch in (BROKER_EPOCH, BROKER_EPOCH + 1, NO_EPOCH):
        obey(lead(controller_epoch=1, broker_epoch=broker_epoch))
    cluster.elect(1, session=7)
    cluster.elect(2, session=8)
    obey(stop(leader_epoch=0, delete=False, controller_epoch=3))


@pytest.mark.parametrize(
    ("winner", "epochs", "broker_epoch"),
    [
        (1, (1,), BROKER_EPOCH),  # the requests are those of controller 2
        (2, (2,), BROKER_EPOCH),
        (2, (3, 1), BROKER_EPOCH),
        (2, (1,), BROKER_EPOCH - 1),
    ],
    ids=[
        "of a broker that was not elected",
        "of an epoch without an election",
        "of an earlier controller",
        "for an earlier registration",
    ],
)
def test_other_requests_must_not_be_obeyed(
    cluster: Cluster,
    obey: Callable[[Any], None],
    winner: int,
    epochs: tuple[int, ...],
    broker_epoch: int,
) -> None:
    cluster.elect(winner, session=8)
    if len(epochs) > 1:
        cluster.elect(1, session=7)
        cluster.elect(2, session=8)
    for epoch in epochs[:-1]:
        obey(lead(controller_epoch=epoch))
    with pytest.raises(Violation, match="Z4"):
        obey(lead(controller_epoch=epochs[-1], broker_epoch=broker_epoch))


def test_the_next_process_of_a_broker_remembers_no_epoch(
    cluster: Cluster, obey: Callable[[Any], None]
) -> None:
    for session in range(1, 4):
        cluster.elect(2, session=session)
    obey(lead(controller_epoch=3))
    cluster.world.brokers[0].life += 1
    obey(lead(controller_epoch=2))


# ---- Z8


@pytest.fixture
def healed(cluster: Cluster) -> Cluster:
    """Broker 1 is the controller, and t-0, with replicas 1 and 2, is led by 1."""
    version = cluster.elect(1, session=7)
    for broker in (1, 2):
        cluster.write(f"/brokers/ids/{broker}", {}, broker)
    topic_id = str(Uuid(b"\5" * 16))
    cluster.write_state(1, 7, version)
    stored = {"partitions": {"0": [1, 2]}, "topic_id": topic_id, "version": 3}
    cluster.write("/brokers/topics/t", stored)
    for machine in cluster.world.brokers:
        machine.live_node = node_of(cluster, machine.id)
    return cluster


def node_of(cluster: Cluster, broker: int) -> Any:
    """A broker that has what ZooKeeper has; image and replicas can be changed."""
    hosted = {("t", 0): SimpleNamespace(leader_epoch=0, is_leader=broker == 1)}
    node = SimpleNamespace(
        is_controller=broker == 1,
        zookeeper=SimpleNamespace(controller_id=1),
        image=None,
        hosted=hosted,
        logs=[SimpleNamespace(topic="t", partition=0)],
    )
    node._image = lambda: image_of_znodes(cluster.znodes) if node.image is None else node.image
    node.broker = SimpleNamespace(
        replica_manager=SimpleNamespace(hosted=lambda topic, at: node.hosted.get((topic, at))),
        log_manager=SimpleNamespace(logs=lambda: node.logs),
    )
    return node


def other_image(cluster: Cluster, **changes: Any) -> Any:
    """The image of the znodes, with another state of t-0."""
    image = image_of_znodes(cluster.znodes)
    topic = image.topic("t")
    assert topic is not None
    state = topic.partitions[0]._replace(**changes)
    topic = topic._replace(partitions=topic.partitions.set(0, state))
    return image._replace(topics_by_id=image.topics_by_id.set(topic.id, topic))


def state(**changes: Any) -> dict[str, Any]:
    return {"leader": 1, "leader_epoch": 0, "isr": [1, 2], "controller_epoch": 1, **changes}


def reassigned(cluster: Cluster, kind: str) -> None:
    stored = {"partitions": {"0": [1, 2]}, "topic_id": str(Uuid(b"\5" * 16)), "version": 3}
    cluster.write("/brokers/topics/t", {**stored, kind: {"0": [2]}})


def grown(cluster: Cluster) -> None:
    stored = {"partitions": {"0": [1, 2], "1": [1]}, "topic_id": str(Uuid(b"\5" * 16))}
    cluster.write("/brokers/topics/t", stored)


def second(cluster: Cluster) -> Any:
    """The node of broker 2."""
    return cluster.world.brokers[1].live_node


BREAKS: dict[str, tuple[Callable[[Cluster], Any], str]] = {
    "no controller": (lambda c: c.delete(CONTROLLER), "/controller does not exist"),
    "a broker is down": (
        lambda c: setattr(c.world.brokers[1], "live_node", None), "n2 is not running",
    ),
    "two controllers": (
        lambda c: setattr(second(c), "is_controller", True), "n2 is controller: True",
    ),
    "the controller does not know it": (
        lambda c: setattr(c.world.brokers[0].live_node, "is_controller", False),
        "n1 is controller: False",
    ),
    "a broker knows another controller": (
        lambda c: setattr(second(c).zookeeper, "controller_id", 2), "n2 knows controller 2",
    ),
    "a broker is not registered": (lambda c: c.delete("/brokers/ids/2"), "brokers \\[1\\] are"),
    "a stranger is registered": (
        lambda c: c.write("/brokers/ids/9", {}, 9), "brokers \\[1, 2, 9\\] are",
    ),
    "a deletion": (lambda c: c.write("/admin/delete_topics/t", b""), "delete_topics has"),
    "a failed directory": (
        lambda c: c.write("/log_dir_event_notification/log_dir_event_0", {}),
        "log_dir_event_notification has",
    ),
    "a changed ISR": (
        lambda c: c.write("/isr_change_notification/isr_change_0", {}),
        "isr_change_notification has",
    ),
    "an ordered reassignment": (
        lambda c: c.write("/admin/reassign_partitions", {}), "reassign_partitions exists",
    ),
    "an ordered election": (
        lambda c: c.write("/admin/preferred_replica_election", {}),
        "preferred_replica_election exists",
    ),
    "a partition without a state": (grown, "t has states of \\[0\\] of"),
    "no leader": (lambda c: c.write(STATE, state(leader=-1)), "t-0 is not in sync"),
    "a small ISR": (lambda c: c.write(STATE, state(isr=[1])), "t-0 is not in sync"),
    "a replica to add": (
        lambda c: reassigned(c, "adding_replicas"),
        "t-0 is being reassigned",
    ),
    "a replica to remove": (
        lambda c: reassigned(c, "removing_replicas"),
        "t-0 is being reassigned",
    ),
    "another leader": (
        lambda c: c.write(STATE, state(leader=2)), "t-0 is not led by its preferred replica",
    ),
    "a broker lacks a topic": (
        lambda c: setattr(
            second(c), "image", image_of_znodes(c.znodes)._replace(topics_by_name={})
        ),
        "n2 has topics \\['t'\\] other than ZooKeeper",
    ),
    "a broker knows another leader": (
        lambda c: setattr(second(c), "image", other_image(c, leader=2)), "n2 has t-0 as",
    ),
    "a broker knows another leader epoch": (
        lambda c: setattr(second(c), "image", other_image(c, leader_epoch=3)), "n2 has t-0 as",
    ),
    "a broker knows another ISR": (
        lambda c: setattr(second(c), "image", other_image(c, isr=(1,))), "n2 has t-0 as",
    ),
    "a replica is not hosted": (lambda c: second(c).hosted.clear(), "n2 does not host t-0"),
    "a replica in another epoch": (
        lambda c: setattr(second(c).hosted["t", 0], "leader_epoch", 4), "n2 has .* in epoch 4",
    ),
    "two leaders": (
        lambda c: setattr(second(c).hosted["t", 0], "is_leader", True), "n2 has .* in epoch 0",
    ),
    "a log of a deleted topic": (
        lambda c: second(c).logs.append(SimpleNamespace(topic="old", partition=1)),
        "n2 has logs of \\[\\('old', 1\\)\\]",
    ),
}  # fmt: skip


def test_a_healed_cluster_has_no_differences(healed: Cluster) -> None:
    assert list(healed.checks.differences()) == []


@pytest.mark.parametrize("name", BREAKS)
def test_each_difference_of_a_healed_cluster_is_found(healed: Cluster, name: str) -> None:
    change, expected = BREAKS[name]
    change(healed)
    found = list(healed.checks.differences())
    assert any(re.search(expected, text) for text in found), found


def test_a_run_whose_brokers_do_not_agree_in_the_end_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its brokers do not start, so none is the controller."""
    monkeypatch.setattr(scenario, "AGREED_S", 0.1)
    run = scenario.ZooKeeperRun(settings_for(PLANTED[0], 1))
    try:
        with pytest.raises(Violation, match=r"Z8: .*/controller does not exist"):
            run._demand_agreement()
    finally:
        run.world.close()
