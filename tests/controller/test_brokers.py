"""Brokers register, serve, fall silent, shut down and leave."""

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import LeaderEpoch, Millis
from sparkraft.base.steps import complete
from sparkraft.controller.leader_election import ChosenBy
from sparkraft.metadata.partition_state import NO_LEADER
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k62_broker_registration as k62
from sparkraft.protocol.messages import k63_broker_heartbeat as k63
from sparkraft.protocol.messages import k64_unregister_broker as k64
from sparkraft.protocol.messages import k67_allocate_producer_ids as k67
from sparkraft.protocol.messages import k70_controller_registration as k70
from tests.controller.cluster_of import Cluster, uuid


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def broker(cluster, broker_id):
    return cluster.core.latest.brokers[broker_id]


def refused(code, ask, *args, **fields):
    with pytest.raises(KafkaError) as caught:
        ask(*args, **fields)
    assert caught.value.code is code


def test_a_new_broker_is_fenced_until_it_has_read_its_registration(cluster):
    response = cluster.register(1)
    assert broker(cluster, 1).fenced
    assert broker(cluster, 1).epoch == response.broker_epoch
    behind = cluster.heartbeat(1, current_metadata_offset=response.broker_epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    there = cluster.heartbeat(1, current_metadata_offset=response.broker_epoch)
    assert (there.is_caught_up, there.is_fenced) == (True, False)
    assert not broker(cluster, 1).fenced


def test_broker_epochs_grow(cluster):
    cluster.start(1, 2)
    assert broker(cluster, 1).epoch < broker(cluster, 2).epoch


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [uuid(99)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [uuid(2000), uuid(2000)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [uuid(2000)]}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        (
            {
                "features": [
                    k62.Feature(
                        name="metadata.version", min_supported_version=7, max_supported_version=29
                    )
                ]
            },
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        (
            {
                "features": [
                    k62.Feature(
                        name="metadata.version", min_supported_version=7, max_supported_version=30
                    )
                ]
            },
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_registrations_that_are_refused(cluster, fields, code):
    cluster.start(1)
    refused(code, cluster.register, 5, **fields)


def test_a_second_broker_of_that_id_waits_for_the_first_ones_session(cluster):
    cluster.start(1)
    refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, cluster.register, 1)
    cluster.now = Millis(cluster.now + 9001)
    cluster.register(1)
    assert broker(cluster, 1).fenced


def test_the_same_incarnation_may_register_again(cluster):
    cluster.start(1)
    before = broker(cluster, 1)
    cluster.register(1, incarnation_id=before.incarnation_id, rack="new")
    assert broker(cluster, 1) == before._replace(rack="new")


def test_a_stale_epoch_is_refused(cluster):
    cluster.start(1)
    epoch = broker(cluster, 1).epoch
    refused(ErrorCode.STALE_BROKER_EPOCH, cluster.heartbeat, 1, broker_epoch=epoch - 1)
    request = k63.BrokerHeartbeatRequest(broker_id=9, broker_epoch=0)
    refused(ErrorCode.STALE_BROKER_EPOCH, cluster.ask, ApiKey.BROKER_HEARTBEAT, request)


def test_silence_fences_one_broker_after_the_other(cluster):
    cluster.start(1, 2, 3)
    cluster.create("t", replicas=[[1, 2, 3]])
    cluster.now = Millis(cluster.now + 5000)
    cluster.heartbeat(3)
    cluster.now = Millis(cluster.now + 4001)
    for gone in (1, 2):
        outcome = complete(cluster.core.fence_one_stale_broker(cluster.now))
        cluster.carry_out(outcome)
        assert broker(cluster, gone).fenced
    assert complete(cluster.core.fence_one_stale_broker(cluster.now)) is None
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (3, (3,))
    first, second = cluster.core.journal.entries(topic="t")
    assert (first.election.previous, first.election.leader) == (1, 2)
    assert (second.election.previous, second.election.leader) == (2, 3)
    assert first.election.reason.cause.text == "broker 1 sent no heartbeat for 9000 ms"
    assert first.election.reason.ruled_out == ((1, "fenced"),)
    assert cluster.core.journal.counts == {"offline": 2}


def test_elections_come_before_the_fencing_record(cluster):
    cluster.start(1, 2)
    cluster.create("t", replicas=[[1, 2]])
    cluster.fence(1)
    kinds = [type(record).__name__ for record in cluster.log[-1][0]]
    assert kinds == ["PartitionChangeRecord", "BrokerRegistrationChangeRecord"]


def test_a_returning_broker_leads_what_nobody_led(cluster):
    cluster.start(1)
    cluster.create("t")
    cluster.fence(1)
    gone = cluster.partition("t")
    assert gone.leader == NO_LEADER
    assert (gone.isr, gone.elr, gone.last_known_elr) == ((), (1,), (1,))
    cluster.heartbeat(1)
    back = cluster.partition("t")
    assert (back.leader, back.isr, back.elr, back.last_known_elr) == (1, (1,), (), ())
    assert back.leader_epoch == 2
    *_, entry = cluster.core.journal.entries()
    assert entry.election.reason.chosen_by is ChosenBy.ELIGIBLE_LEADER_REPLICA


def test_without_elr_the_last_one_stays_in_the_isr():
    cluster = Cluster()
    cluster.start(1)
    cluster.create("t")
    cluster.ask_features(**{"eligible.leader.replicas.version": 0})
    cluster.fence(1)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((1,), NO_LEADER)
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == 1


def test_who_was_left_in_sync_before_elr_was_enabled_may_lead_again():
    """Without leader and ELR, nothing else would tell who has the data."""
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create("t", replicas=[[1, 2]])
    cluster.ask_features(**{"eligible.leader.replicas.version": 0})
    cluster.fence(2)
    cluster.fence(1)
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((1,), NO_LEADER)
    cluster.ask_features(**{"eligible.leader.replicas.version": 1})
    cluster.now = Millis(cluster.now + 9001)
    cluster.register(1)  # no previous epoch: it can't say that it stopped cleanly
    lost = cluster.partition("t")
    assert (lost.isr, lost.elr, lost.leader, lost.last_known_elr) == ((), (), NO_LEADER, (1,))
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.heartbeat(1)
    led = cluster.partition("t")
    assert (led.leader, led.isr, led.leader_recovery_state) == (1, (1,), 1)
    assert led.last_known_elr == ()


def test_an_unclean_restart_costs_the_isr_and_the_elr(cluster):
    cluster.start(1, 2)
    cluster.create("t", replicas=[[1, 2]])
    cluster.create("u", replicas=[[1]])
    cluster.now = Millis(cluster.now + 9001)
    cluster.heartbeat(2)
    cluster.register(1)  # no previous epoch: it can't say that it stopped cleanly
    assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((2,), 2)
    lost = cluster.partition("u")
    assert (lost.isr, lost.elr, lost.leader, lost.last_known_elr) == ((), (), NO_LEADER, (1,))
    cluster.heartbeat(1)
    led = cluster.partition("u")
    assert (led.leader, led.isr, led.leader_recovery_state) == (1, (1,), 1)


def test_a_clean_restart_keeps_its_place_in_the_elr(cluster):
    cluster.start(1)
    cluster.create("u", replicas=[[1]])
    before = broker(cluster, 1).epoch
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(1, want_shut_down=True)
    cluster.now = Millis(cluster.now + 9001)
    cluster.register(1, previous_broker_epoch=before)
    assert cluster.partition("u").elr == (1,)
    cluster.heartbeat(1)
    led = cluster.partition("u")
    assert (led.leader, led.leader_recovery_state) == (1, 0)


def test_controlled_shutdown_moves_leaders_first(cluster):
    cluster.start(1, 2)
    cluster.create("t", replicas=[[1, 2]])
    first = cluster.heartbeat(1, want_shut_down=True)
    assert not first.should_shut_down
    assert broker(cluster, 1).in_controlled_shutdown
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (2, (2,))
    second = cluster.heartbeat(1, want_shut_down=True)
    assert not second.should_shut_down  # broker 2 has not seen it yet
    cluster.heartbeat(2)
    third = cluster.heartbeat(1, want_shut_down=True)
    assert third.should_shut_down
    assert broker(cluster, 1).fenced


def test_a_broker_without_leaderships_may_stop_at_once(cluster):
    cluster.start(1)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert broker(cluster, 1).fenced


def test_an_offline_directory_costs_its_replicas_the_isr(cluster):
    cluster.start(1, directories=2)
    cluster.start(2)
    cluster.create("t", replicas=[[1, 2]])
    cluster.assign("t", 1, uuid(2000))
    cluster.heartbeat(1, offline_log_dirs=[uuid(2000)])
    assert broker(cluster, 1).directories == (uuid(2001),)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (2, (2,))
    assert not broker(cluster, 1).fenced


def test_cordoned_directories_are_noted_once(cluster):
    cluster.start(1)
    cluster.heartbeat(1, cordoned_log_dirs=[uuid(2000)])
    assert broker(cluster, 1).cordoned_directories == (uuid(2000),)
    before = len(cluster.log)
    cluster.heartbeat(1, cordoned_log_dirs=[uuid(2000)])
    assert len(cluster.log) == before
    assert cluster.create("t").error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_cordoned_directories_are_a_set(cluster):
    cluster.start(1, directories=2)
    both = [uuid(2000), uuid(2001)]
    cluster.heartbeat(1, cordoned_log_dirs=both)
    before = len(cluster.log)
    cluster.heartbeat(1, cordoned_log_dirs=both[::-1])
    assert len(cluster.log) == before


def test_two_directories_that_fail_at_once_cost_each_its_replicas(cluster):
    cluster.start(1, directories=3)
    cluster.start(2)
    cluster.create("t", replicas=[[1, 2], [1, 2], [1, 2]])
    for index in range(3):
        cluster.assign("t", 1, uuid(2000 + index), index=index)
    cluster.heartbeat(1, offline_log_dirs=[uuid(2000), uuid(2001)])
    assert [cluster.partition("t", index).leader for index in range(3)] == [2, 2, 1]
    assert broker(cluster, 1).directories == (uuid(2002),)


def test_a_directory_that_fails_while_its_broker_returns_leads_nothing(cluster):
    cluster.start(1, directories=2)
    cluster.create("t", replicas=[[1]])
    cluster.assign("t", 1, uuid(2000))
    cluster.fence(1)
    cluster.heartbeat(1, offline_log_dirs=[uuid(2000)])
    assert not broker(cluster, 1).fenced
    assert cluster.partition("t").leader == NO_LEADER


def test_a_broker_that_was_let_go_may_register_at_once(cluster):
    cluster.start(1, 2)
    cluster.create("t", replicas=[[1, 2]])
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(2)
    epoch = broker(cluster, 1).epoch
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.register(1, previous_broker_epoch=epoch)
    assert broker(cluster, 1).epoch > epoch


def test_a_broker_that_leaves_leaves_every_isr(cluster):
    cluster.start(1, 2)
    cluster.create("t", replicas=[[1, 2]])
    cluster.ask(ApiKey.UNREGISTER_BROKER, k64.UnregisterBrokerRequest(broker_id=1))
    assert 1 not in cluster.core.latest.brokers
    assert cluster.partition("t").isr == (2,)
    request = k64.UnregisterBrokerRequest(broker_id=1)
    refused(ErrorCode.BROKER_ID_NOT_REGISTERED, cluster.ask, ApiKey.UNREGISTER_BROKER, request)


def test_producer_ids_are_given_out_once(cluster):
    cluster.start(1)
    blocks = [
        cluster.ask(
            ApiKey.ALLOCATE_PRODUCER_IDS,
            k67.AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.epochs[1]),
        )
        for _ in range(3)
    ]
    assert [(b.producer_id_start, b.producer_id_len) for b in blocks] == [
        (0, 1000), (1000, 1000), (2000, 1000),
    ]  # fmt: skip


def test_a_controller_registers(cluster):
    request = k70.ControllerRegistrationRequest(
        controller_id=1000,
        incarnation_id=uuid(777),
        listeners=[k70.Listener(name="CONTROLLER", host="h", port=9093)],
        features=[
            k70.Feature(name="kraft.version", min_supported_version=0, max_supported_version=1)
        ],
    )
    cluster.ask(ApiKey.CONTROLLER_REGISTRATION, request)
    registered = cluster.core.latest.controllers[1000]
    assert registered.endpoints[0].port == 9093
    assert registered.supported_features["kraft.version"] == (0, 1)


def test_a_new_controller_gives_everybody_a_session(cluster):
    cluster.start(1)
    cluster.now = Millis(cluster.now + 60_000)
    cluster.core.deactivate()
    cluster.core.activate([], LeaderEpoch(2), cluster.now)
    assert complete(cluster.core.fence_one_stale_broker(cluster.now)) is None
    refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, cluster.register, 1)


def test_the_broker_of_this_process_needs_no_session_to_end():
    cluster = Cluster(node_id=1, is_broker=True)
    cluster.start(1)
    cluster.core.deactivate()
    cluster.core.activate([], LeaderEpoch(2), cluster.now)
    cluster.register(1)
    assert broker(cluster, 1).fenced
