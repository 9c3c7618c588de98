"""Planted bugs in brokers and controllers in ZooKeeper mode: play `zookeeper`.

Those named after an issue are bugs that Apache Kafka had.
"""

from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.server.zookeeper import lifecycle
from sparkraft.server.zookeeper.control import ControllerRequests
from sparkraft.zookeeper.controller import (
    admin,
    brokers,
    deletion,
    election,
    failover,
    isr,
    partitions,
    reassignment,
    replicas,
    store,
    strategies,
    topics,
    znodes,
)
from sparkraft.zookeeper.controller.states import ReplicaStatus
from sparkraft.zookeeper.controller.steps import Answer
from sparkraft.zookeeper.controller.strategies import Strategy
from sparkraft.zookeeper.controller.values import LeaderAndIsr
from sparkraft.zookeeper.errors import ZooKeeperError
from sparkraft.zookeeper.requests import Create, Delete, SetData
from sparkraft.zookeeper.znodes.brokers import BROKER_IDS, Registration, encode_registration
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

ZOOKEEPER_MUTANTS: dict[str, Mutant] = {}

_plant = registrar(ZOOKEEPER_MUTANTS, tiers=NODES, workload="zookeeper", scenario="zookeeper")


# ---- elections of the controller, fencing, sessions


@_plant("a new controller keeps the controller epoch", "Z1")
def _an_election_keeps_the_epoch() -> Patches:
    original = znodes.encode_epoch
    return [(znodes, "encode_epoch", lambda epoch: original(max(epoch - 1, 0)))]


@_plant("/controller is created before the epoch is raised", "Z1")
def _an_election_takes_two_steps() -> Patches:
    def register(node_id: int, before: Any, now_ms: int) -> Any:
        data = znodes.encode_controller(node_id, now_ms)
        create = Create(path=znodes.CONTROLLER, data=data, ephemeral=True)
        (result,) = yield from store.read([create])
        if isinstance(result, ZooKeeperError):
            return election.Lost("another broker was faster")
        epoch = before.epoch + 1
        bump = SetData(path=znodes.CONTROLLER_EPOCH, data=znodes.encode_epoch(epoch))
        (stat,) = yield from store.read([bump])
        return election.Won(znodes.Epoch(epoch, stat.version), reply_was_lost=False)

    return [(election, "_register", register)]


@_plant("KAFKA-6082: writes of the controller are not fenced", "Z3")
def _kafka_6082_writes_are_not_fenced() -> Patches:
    def write(operations: Any, _epoch_version: int) -> Any:
        return (yield from store.read(list(operations)))

    return [(store, "write", write)]


@_plant(
    "writes are guarded by the newest version of /controller_epoch, not that of the election", "Z2"
)
def _any_version_of_the_epoch_guards() -> Patches:
    original = store.write

    def write(operations: Any, _epoch_version: int) -> Any:
        newest = yield from store.read_epoch()
        assert newest is not None
        return (yield from original(operations, newest.version))

    return [(store, "write", write)]


@_plant("a won election whose reply was lost counts as lost", "Z8")
def _a_lost_reply_is_a_lost_election() -> Patches:
    def check(_node_id: int, _epoch: int) -> Any:
        yield from store.read_controller()
        return election.Lost("another broker was faster")

    return [(election, "_check_own_registration", check)]


@_plant("the controller reads the brokers without a new watch", "Z8")
def _the_watch_on_brokers_fires_once() -> Patches:
    original = store.read_brokers

    def read_brokers(*, watch: bool) -> Any:
        return (yield from original(watch=False))

    return [(store, "read_brokers", read_brokers)]


# ---- what brokers obey


@_plant("KAFKA-7235: requests for an earlier registration are obeyed", "Z4")
def _kafka_7235_broker_epochs_are_ignored() -> Patches:
    def begin(self: ControllerRequests, request: Any, name: str) -> None:
        if request.controller_epoch < self.controller_epoch:
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch

    return [(ControllerRequests, "_begin", begin)]


# ---- addresses of brokers


@_plant("a broker whose listeners change registers again", "Z11")
def _changed_listeners_are_a_new_registration() -> Patches:
    async def update(client: Any, broker: int, registration: Registration) -> None:
        path = f"{BROKER_IDS}/{broker}"
        await client.submit_until_connected(Delete(path=path))
        data = encode_registration(registration)
        await client.submit_until_connected(Create(path=path, data=data, ephemeral=True))

    return [(lifecycle, "update_registration", update)]


@_plant("the controller ignores a registration that changes", "Z11")
def _changed_registrations_are_ignored() -> Patches:
    def modified(_active: Any, broker: int) -> Any:
        yield from store.read_broker(broker)

    return [(brokers, "on_broker_modified", modified)]


@_plant("a new session registers the listeners of server.properties", "Z11")
def _a_new_session_forgets_the_listeners() -> Patches:
    original = lifecycle.ZooKeeperLifecycle._register_again

    async def again(self: lifecycle.ZooKeeperLifecycle) -> None:
        advertised = self._advertised
        self._addresses = advertised.addresses = advertised._addresses_of(self._config)
        await original(self)

    return [(lifecycle.ZooKeeperLifecycle, "_register_again", again)]


# ---- leaders and ISRs


@_plant("KAFKA-9866: the preferred leader is elected outside the ISR", "Z5")
def _kafka_9866_preferred_leaders_out_of_sync() -> Patches:
    original = strategies.elect

    def elect(strategy: Strategy, context: Any, at: Any, state: Any, **more: Any) -> Any:
        if strategy is Strategy.PREFERRED:
            state = state._replace(isr=context.assignment(at).replicas)
        return original(strategy, context, at, state, **more)

    return [(partitions, "elect", elect)]


@_plant("any live replica may lead if the ISR is offline", "Z5")
def _every_election_may_be_unclean() -> Patches:
    def allowed(*arguments: Any, **_: Any) -> Any:
        yield from ()
        return dict.fromkeys(arguments[1], True)

    return [(partitions, "_unclean_allowed", allowed)]


@_plant("the last member leaves the ISR", "Z5")
def _the_last_member_leaves_the_isr() -> Patches:
    def without(self: LeaderAndIsr, replica: int) -> LeaderAndIsr:
        isr = tuple(r for r in self.isr if r != replica)
        return self.elect(-1 if replica == self.leader else self.leader, isr)

    return [(LeaderAndIsr, "without", without)]


@_plant("an election keeps the leader epoch", "Z5")
def _elections_keep_the_leader_epoch() -> Patches:
    def elect(self: LeaderAndIsr, leader: int, members: tuple[int, ...]) -> LeaderAndIsr:
        return self._replace(leader=leader, isr=members)

    return [(LeaderAndIsr, "elect", elect)]


@_plant("KAFKA-14140: a broker that shuts down is added to ISRs", "Z5")
def _kafka_14140_brokers_that_leave_join_isrs() -> Patches:
    original = isr._decide

    def decide(active: Any, at: Any, wanted: Any, version: int) -> Any:
        found = original(active, at, wanted, version)
        return None if found is ErrorCode.INELIGIBLE_REPLICA else found

    return [(isr, "_decide", decide)]


@_plant("leaders are sent to brokers without a write", "Z6")
def _leaders_are_not_written() -> Patches:
    def update(states: Any, _context: Any) -> Any:
        yield from ()
        finished = {
            at: state._replace(partition_epoch=state.partition_epoch + 1)
            for at, state in states.items()
        }
        return store.UpdatedStates(finished=finished, to_retry=[])

    return [(store, "update_states", update)]


@_plant("brokers are not sent changed ISRs", "Z8")
def _changed_isrs_are_not_published() -> Patches:
    def send(*_: Any) -> Any:
        yield from ()

    return [(isr, "send_metadata", send)]


# ---- brokers that come and go, failovers


@_plant("KAFKA-7235: a broker that returns between two reads is not noticed", "Z8")
def _kafka_7235_bounced_brokers_are_not_noticed() -> Patches:
    def changed(active: Any) -> Any:
        known = active.context.brokers
        found = yield from store.read_brokers(watch=True)
        started, failed = sorted(found.keys() - known.keys()), sorted(known.keys() - found.keys())
        if started:
            known.update((broker, found[broker]) for broker in started)
            yield from brokers.on_started(active, started)
        if failed:
            yield from brokers._forget(active, failed)

    return [(brokers, "on_brokers_changed", changed)]


@_plant("a new controller does not start the replicas", "Z8")
def _a_failover_sends_no_replicas() -> Patches:
    def start(active: Any) -> Any:
        yield from replicas.initialize(active)

    return [(failover, "_start_replicas", start)]


@_plant("a new controller does not read pending deletions", "Z8")
def _a_failover_forgets_deletions() -> Patches:
    def find(active: Any) -> Any:
        yield from store.read_children(znodes.DELETE_TOPICS, watch=True)
        active.context.topics_to_be_deleted = set()

    return [(failover, "_find_deletions", find)]


@_plant("a new controller does not continue reassignments", "Z8")
def _a_failover_forgets_reassignments() -> Patches:
    def resume(active: Any) -> Any:
        yield from store.read_reassignments(active.ignore)

    return [(failover, "_continue_reassignments", resume)]


# ---- controlled shutdowns


@_plant("a broker that shuts down stays in the ISRs of partitions that it follows", "Z10")
def _a_broker_that_shuts_down_stays_in_isrs() -> Patches:
    original = replicas.move

    def move(active: Any, some: Any, status: ReplicaStatus) -> Any:
        leaving = active.context.shutting_down
        if status is ReplicaStatus.OFFLINE:
            some = [each for each in some if each.broker not in leaving]
        yield from original(active, some, status)

    return [(replicas, "move", move)]


@_plant("the answer to a controlled shutdown leaves out what the broker still leads", "Z10")
def _a_controlled_shutdown_forgets_partitions() -> Patches:
    original = brokers.shut_down

    def shut_down(active: Any, broker: int) -> Any:
        yield from original(active, broker)
        return []

    return [(brokers, "shut_down", shut_down)]


# ---- deletions, reassignments, producer ids


@_plant("a deletion that waited for a broker is not resumed", "Z8")
def _deletions_are_not_resumed() -> Patches:
    def resume(*_: Any) -> Any:
        yield from ()

    return [(deletion, "resume_topics", resume)]


@_plant("responses to deletions are not handled", "Z8")
def _responses_to_deletions_are_ignored() -> Patches:
    def handle(*_: Any) -> Any:
        yield from ()

    return [(topics, "on_stop_replica_response", handle)]


@_plant("a reassignment is complete at once", "Z5", "P5", "C10", "Z8")
def _reassignments_do_not_wait_for_the_isr() -> Patches:
    def is_complete(*_: Any) -> Any:
        yield from ()
        return True

    return [(reassignment, "is_complete", is_complete)]


@_plant("KAFKA-9212: the next leader epoch of a reassignment is not remembered", "Z8")
def _kafka_9212_epochs_of_reassignments_are_forgotten() -> Patches:
    original = reassignment._write_next_epoch

    def write(active: Any, at: Any) -> Any:
        yield from original(active, at)
        return active.context.leaderships[at].state

    return [(reassignment, "_write_next_epoch", write)]


@_plant("blocks of producer ids are handed out without a write", "C9")
def _producer_ids_are_not_written() -> Patches:
    def allocate(active: Any, _broker: int, _epoch: int) -> Any:
        found = yield from store.read_data([znodes.PRODUCER_IDS], watch=False)
        first = 0 if found[0] is None else znodes.next_producer_id(found[0][0])
        yield Answer(first)

    return [(admin, "allocate_producer_ids", allocate)]
