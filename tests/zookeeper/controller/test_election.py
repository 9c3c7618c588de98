"""Election, lost replies, resignation and moves, on znodes in memory."""

import pytest

from sparkraft.zookeeper.controller import election
from sparkraft.zookeeper.controller.active import NO_CONTROLLER, Active, Settings
from sparkraft.zookeeper.controller.election import Lost, Won
from sparkraft.zookeeper.controller.steps import ControllerMovedError
from sparkraft.zookeeper.controller.values import Broker
from sparkraft.zookeeper.controller.znodes import Epoch
from sparkraft.zookeeper.errors import SessionExpiredError
from sparkraft.zookeeper.requests import Create, Delete
from tests.zookeeper.controller.cluster import Cluster

NOW = 1795543512567


def candidate(cluster, node_id):
    """Another node on the same znodes."""
    other = Cluster.__new__(Cluster)
    other.__dict__.update(cluster.__dict__)
    other.active = Active(Settings(node_id=node_id))
    other.writes, other.sent = [], []
    return other


@pytest.fixture
def cluster():
    made = candidate(Cluster(1, 2), 1)
    made.set("/controller_epoch", b"7")
    return made


def attempt(cluster):
    return cluster.run(election.elect(cluster.active, NOW))


def test_the_first_candidate_wins_the_next_epoch_and_the_second_finds_it(cluster):
    assert attempt(cluster) == Won(Epoch(8, 2), reply_was_lost=False)
    assert cluster.znodes.get("/controller").data == (
        b'{"version":2,"brokerid":1,"timestamp":"1795543512567","kraftControllerEpoch":-1}'
    )
    assert cluster.znodes.get("/controller_epoch").data == b"8"
    assert (cluster.context.epoch, cluster.context.epoch_version) == (8, 2)
    assert cluster.active.is_active
    other = candidate(cluster, 2)
    assert attempt(other) == Lost("broker 1 is the controller")
    assert other.active.controller_id == 1
    assert not other.active.is_active


def test_a_controller_that_is_not_registered_is_named(cluster):
    cluster.make("/controller", b'{"version":2,"brokerid":99,"timestamp":"1"}')
    assert cluster.run(election.compete(cluster.active, NOW)) is False
    assert cluster.active.journal.of("attempt") == ["lost: broker 99 is the controller"]
    (named,) = cluster.active.journal.of("stranger")
    assert named.startswith("/controller names broker 99, which is not registered")


def test_a_controller_that_is_registered_or_of_a_quorum_is_no_stranger(cluster):
    for data in (
        b'{"version":2,"brokerid":2,"timestamp":"1"}',
        b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":1}',
    ):
        cluster.make("/controller", data)
        assert cluster.run(election.compete(cluster.active, NOW)) is False
        cluster.znodes.apply(Delete(path="/controller"), 0, 0)
    assert len(cluster.active.journal.of("attempt")) == 2
    assert cluster.active.journal.of("stranger") == []


def test_the_first_controller_of_a_cluster_creates_the_epoch(cluster):
    cluster.znodes.apply(Delete(path="/controller_epoch"), 0, 0)
    assert attempt(cluster) == Won(Epoch(1, 1), reply_was_lost=False)


def test_of_two_candidates_at_once_one_wins(cluster):
    other = candidate(cluster, 2)

    def overtake():
        cluster.before_write = lambda: None
        assert isinstance(attempt(other), Won)

    cluster.before_write = overtake
    assert attempt(cluster) == Lost("broker 2 was faster")
    assert cluster.znodes.get("/controller_epoch").data == b"8"
    assert not cluster.active.is_active
    assert cluster.context.epoch == 0


def test_a_candidate_that_read_an_old_epoch_loses(cluster):
    def bump():
        cluster.before_write = lambda: None
        cluster.set("/controller_epoch", b"9")

    cluster.before_write = bump
    assert attempt(cluster) == Lost("the controller that won has resigned")
    assert cluster.znodes.get("/controller_epoch").data == b"9"


def test_a_candidate_recognizes_its_own_transaction_when_its_reply_was_lost(cluster):
    cluster.repeat_writes = True
    assert attempt(cluster) == Won(Epoch(8, 2), reply_was_lost=True)
    assert cluster.context.epoch_version == 2


def test_an_older_registration_of_this_node_is_not_taken_for_its_own_transaction(cluster):
    def older_self():
        cluster.before_write = lambda: None
        path, data = "/controller", b'{"version":2,"brokerid":1,"timestamp":"1"}'
        cluster.znodes.apply(Create(path=path, data=data, ephemeral=True), 99, 0)

    cluster.before_write = older_self
    assert attempt(cluster) == Lost("broker 1 was faster")


def test_the_winner_takes_over(cluster):
    cluster.topic("t", {0: [2]})
    cluster.state(("t", 0), 2, [2])
    assert cluster.run(election.compete(cluster.active, NOW)) is True
    assert cluster.context.live_brokers == [1, 2]
    assert cluster.active.journal.of("attempt") == ["won epoch 8"]
    assert cluster.sends()[0] == "UpdateMetadata to 1:"


def test_a_failed_failover_moves_the_controller(cluster):
    cluster.set("/brokers/ids/2", b"{")
    assert cluster.run(election.compete(cluster.active, NOW)) is False
    assert "controller" not in cluster.znodes.get("/").children
    assert cluster.active.controller_id == NO_CONTROLLER
    assert cluster.context.epoch == 0
    (reason,) = cluster.active.journal.of("resignation")
    assert reason.startswith("epoch 8: the failover failed: ")


def test_a_controller_that_is_deposed_during_its_failover_resigns_and_writes_nothing(cluster):
    cluster.make("/isr_change_notification/isr_change_0000000000")
    other = candidate(cluster, 2)

    def after_registration():
        cluster.before_write = depose

    def depose():
        cluster.before_write = lambda: None
        cluster.znodes.apply(Delete(path="/controller"), 0, 0)
        assert isinstance(attempt(other), Won)

    cluster.before_write = after_registration
    assert cluster.run(election.compete(cluster.active, NOW)) is False
    assert cluster.active.controller_id == 2
    assert cluster.znodes.get("/isr_change_notification").children
    assert cluster.active.journal.of("resignation") == [
        "epoch 8: the version of /controller_epoch has changed"
    ]


def test_an_expired_session_ends_the_failover_without_a_move(cluster):
    def expire():
        raise SessionExpiredError(-112)

    cluster.make("/isr_change_notification/isr_change_0000000000")
    cluster.before_write = lambda: setattr(cluster, "before_write", expire)
    with pytest.raises(SessionExpiredError):
        cluster.run(election.compete(cluster.active, NOW))


def test_a_controller_resigns_when_another_is_registered(cluster):
    attempt(cluster)
    cluster.context.brokers[1] = Broker(1, 1, ())
    cluster.run(election.maybe_resign(cluster.active, "changed"))
    assert cluster.active.is_active
    cluster.set("/controller", b'{"version":1,"brokerid":2,"timestamp":"1"}')
    cluster.run(election.maybe_resign(cluster.active, "changed"))
    assert cluster.active.controller_id == 2
    assert cluster.context.brokers == {}
    assert cluster.context.epoch == 0
    cluster.run(election.maybe_resign(cluster.active, "changed"))
    assert cluster.active.journal.of("resignation") == ["epoch 8: changed"]


def test_a_move_does_not_delete_the_znode_of_another_controller(cluster):
    attempt(cluster)
    cluster.set("/controller_epoch", b"9")
    cluster.run(election.move_away(cluster.active, "a test"))
    assert not cluster.active.is_active
    assert "controller" in cluster.znodes.get("/").children
    assert cluster.active.journal.of("resignation") == [
        "epoch 8: a test", "another controller was elected already"]  # fmt: skip


def test_an_operator_deposes_the_present_controller_only(cluster):
    assert cluster.run(election.depose()) is None
    attempt(cluster)

    def change():
        cluster.before_write = lambda: None
        cluster.set("/controller_epoch", b"9")

    cluster.before_write = change
    with pytest.raises(ControllerMovedError):
        cluster.run(election.depose())
    assert cluster.run(election.depose()).broker == 1
    assert "controller" not in cluster.znodes.get("/").children


def test_an_operator_does_not_depose_a_kraft_controller(cluster):
    data = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":4}'
    cluster.make("/controller", data)
    assert cluster.run(election.depose()).is_kraft
    assert "controller" in cluster.znodes.get("/").children
