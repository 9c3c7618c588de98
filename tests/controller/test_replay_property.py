"""Whatever is asked of the controller: its log, replayed from empty, gives its live state.

And on every step: a snapshot of the image reloads to an equal image, and the invariants of
partitions hold (leader in ISR, ELR apart from it, replicas unique, names and ids bijective), and
every replica and partition goes only to states that its table allows.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparkraft.base.errors import KafkaError
from sparkraft.base.ids import LeaderEpoch, Millis
from sparkraft.base.steps import complete
from sparkraft.controller.controller import Controller
from sparkraft.controller.history import History
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.metadata.partition_state import NO_LEADER, PartitionState
from sparkraft.metadata.replay import Replay
from sparkraft.metadata.snapshot import records_of
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.framing import decode_metadata_record, encode_metadata_record
from sparkraft.protocol.messages import k20_delete_topics as k20
from sparkraft.protocol.messages import k33_alter_configs as k33
from sparkraft.protocol.messages import k37_create_partitions as k37
from sparkraft.protocol.messages import k43_elect_leaders as k43
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45
from sparkraft.protocol.messages import k64_unregister_broker as k64
from sparkraft.protocol.messages import k67_allocate_producer_ids as k67
from tests.controller.cluster_of import Cluster, Dice, uuid
from tests.controller.explanations import check_against_journal
from tests.controller.transitions import Transitions

BROKERS = st.integers(1, 4)
NAMES = st.sampled_from(["a", "b", "c.d", "c_d", "bad name"])
ISRS = st.lists(BROKERS, min_size=1, max_size=4, unique=True)
CONFIGS = st.sampled_from(
    [
        ("retention.ms", "1000"),
        ("retention.ms", "soon"),
        ("min.insync.replicas", "1"),
        ("min.insync.replicas", "2"),
        ("min.insync.replicas", "3"),
        ("unclean.leader.election.enable", "true"),
        ("unclean.leader.election.enable", "false"),
        ("cleanup.policy", "compact"),
    ]
)


class ControllerMachine(RuleBasedStateMachine):
    """Four brokers, a handful of topics, and everything that may happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.cluster.start(1, 2, 3)
        self.cluster.create("a", partitions=2, replication=3, min_insync_replicas="2")
        self.epochs_seen: dict[int, int] = dict(self.cluster.epochs)
        self.blocks: list[int] = []
        self.transitions = Transitions()
        # Without ELR the last of the ISR stays in it, fenced or gone, and nothing mends that later.
        self.elr_always_on = True

    def ask(self, key: ApiKey, request: Any, **more: Any) -> Any:
        try:
            return self.cluster.ask(key, request, **more)
        except KafkaError as error:
            return error

    def topic(self, name: str) -> bool:
        return name in self.cluster.core.latest.topics_by_name

    # Brokers.

    @rule(broker=BROKERS, directories=st.integers(1, 2), clean=st.booleans(),
          rack=st.sampled_from([None, "r1", "r2"]))  # fmt: skip
    def register(self, broker: int, directories: int, rack: str | None, *, clean: bool) -> None:
        before = self.cluster.epochs.get(broker, -1)
        try:
            self.cluster.register(
                broker,
                rack=rack,
                directories=directories,
                previous_broker_epoch=before if clean else -1,
            )
        except KafkaError:
            return
        assert self.cluster.epochs[broker] > self.epochs_seen.get(broker, -1)
        self.epochs_seen[broker] = self.cluster.epochs[broker]

    @rule(broker=BROKERS, fence=st.booleans(), stop=st.booleans(), offline=st.booleans(),
          cordon=st.booleans())  # fmt: skip
    def heartbeat(
        self, broker: int, *, fence: bool, stop: bool, offline: bool, cordon: bool
    ) -> None:
        if broker not in self.cluster.core.latest.brokers:
            return
        directory = uuid(1000 * (broker + 1) + 1)
        fields: dict[str, Any] = {"want_fence": fence, "want_shut_down": stop}
        if offline:
            fields["offline_log_dirs"] = [directory]
        if cordon:
            fields["cordoned_log_dirs"] = [directory]
        self.cluster.heartbeat(broker, **fields)

    @rule(broker=BROKERS)
    def serve(self, broker: int) -> None:
        if broker in self.cluster.core.latest.brokers:
            self.cluster.heartbeat(broker)

    @rule(ms=st.integers(1, 12_000))
    def time_passes(self, ms: int) -> None:
        self.cluster.now = Millis(self.cluster.now + ms)
        core = self.cluster.core
        while (out := complete(core.fence_one_stale_broker(self.cluster.now))) is not None:
            self.cluster.carry_out(out)

    @rule(broker=BROKERS)
    def unregister(self, broker: int) -> None:
        self.ask(ApiKey.UNREGISTER_BROKER, k64.UnregisterBrokerRequest(broker_id=broker))

    @rule(broker=BROKERS)
    def producer_ids(self, broker: int) -> None:
        if broker in self.cluster.core.latest.brokers:
            epoch = self.cluster.core.latest.brokers[broker].epoch
            request = k67.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
            block = self.ask(ApiKey.ALLOCATE_PRODUCER_IDS, request)
            assert block.producer_id_start not in self.blocks
            self.blocks.append(block.producer_id_start)

    # Topics.

    @rule(name=NAMES, partitions=st.integers(1, 3), replication=st.integers(1, 4))
    def create(self, name: str, partitions: int, replication: int) -> None:
        self.cluster.create(name, partitions=partitions, replication=replication)

    @rule(name=NAMES, replicas=st.lists(ISRS, min_size=1, max_size=2), config=CONFIGS)
    def create_by_hand(self, name: str, replicas: list[list[int]], config: tuple[str, str]) -> None:
        self.cluster.create(name, replicas=replicas, **{config[0].replace(".", "_"): config[1]})

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        request = k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name=name)])
        self.ask(ApiKey.DELETE_TOPICS, request)

    @rule(name=NAMES, count=st.integers(1, 5))
    def grow(self, name: str, count: int) -> None:
        wanted = k37.CreatePartitionsTopic(name=name, count=count)
        self.ask(ApiKey.CREATE_PARTITIONS, k37.CreatePartitionsRequest(topics=[wanted]))

    @rule(kind=st.sampled_from([2, 4, 32]), name=st.sampled_from(["", "1", "a", "b"]),
          config=CONFIGS, operation=st.integers(0, 3))  # fmt: skip
    def set_config(self, kind: int, name: str, config: tuple[str, str], operation: int) -> None:
        change = k44.AlterableConfig(
            name=config[0], config_operation=operation, value=None if operation == 1 else config[1]
        )
        resource = k44.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[change]
        )
        request = k44.IncrementalAlterConfigsRequest(resources=[resource])
        self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)

    @rule(name=NAMES, configs=st.lists(CONFIGS, max_size=2))
    def replace_configs(self, name: str, configs: list[tuple[str, str]]) -> None:
        resource = k33.AlterConfigsResource(
            resource_type=2,
            resource_name=name,
            configs=[k33.AlterableConfig(name=key, value=value) for key, value in configs],
        )
        self.ask(ApiKey.ALTER_CONFIGS, k33.AlterConfigsRequest(resources=[resource]))

    # Replication.

    @rule(name=NAMES, isr=ISRS)
    def alter_isr(self, name: str, isr: list[int]) -> None:
        if self.topic(name) and self.cluster.partition(name).leader in self.cluster.epochs:
            leader = self.cluster.partition(name).leader
            try:
                self.cluster.alter_isr(name, isr, leader=leader)
            except KafkaError:
                return

    @rule(kind=st.integers(0, 1), name=st.one_of(st.none(), NAMES))
    def elect(self, kind: int, name: str | None) -> None:
        wanted = None if name is None else [k43.TopicPartitions(topic=name, partitions=[0, 1])]
        request = k43.ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
        self.ask(ApiKey.ELECT_LEADERS, request)

    @rule(name=NAMES, replicas=st.one_of(st.none(), ISRS), resize=st.booleans())
    def reassign(self, name: str, replicas: list[int] | None, *, resize: bool) -> None:
        wanted = k45.ReassignablePartition(partition_index=0, replicas=replicas)
        topic = k45.ReassignableTopic(name=name, partitions=[wanted])
        request = k45.AlterPartitionReassignmentsRequest(
            topics=[topic], allow_replication_factor_change=resize
        )
        self.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)

    @rule(name=NAMES, broker=BROKERS, second=st.booleans())
    def assign_directory(self, name: str, broker: int, *, second: bool) -> None:
        if self.topic(name) and broker in self.cluster.core.latest.brokers:
            self.cluster.assign(name, broker, uuid(1000 * (broker + 1) + int(second)))

    @rule()
    def balance(self) -> None:
        self.cluster.carry_out(complete(self.cluster.core.balance_leaders()))
        self.cluster.carry_out(complete(self.cluster.core.elect_uncleanly_where_allowed()))

    # The cluster as a whole.

    @rule(level=st.integers(0, 1))
    def elr(self, level: int) -> None:
        try:
            self.cluster.ask_features(**{"eligible.leader.replicas.version": level})
        except KafkaError:
            return
        self.elr_always_on &= level == 1

    @rule()
    def fail_over(self) -> None:
        """Another controller takes over with what was committed."""
        core = Controller(self.cluster.config, Dice(len(self.cluster.log)))
        for records, base in self.cluster.log:
            core.replay_committed(
                records, base_offset=base, last_offset=base + len(records) - 1, epoch=1
            )
        assert core.latest == self.cluster.core.latest
        self.cluster.core = core
        self.cluster.carry_out(core.activate([], LeaderEpoch(1), self.cluster.now))

    @rule(name=NAMES)
    def lose_leadership(self, name: str) -> None:
        """What was decided and never committed is forgotten."""
        before = self.cluster.core.latest
        log = list(self.cluster.log)
        request = k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name=name)])
        self.cluster.ask(ApiKey.DELETE_TOPICS, request, commit=False)
        self.cluster.core.deactivate()
        self.cluster.log = log
        assert self.cluster.core.latest == before
        self.cluster.core.activate([], LeaderEpoch(1), self.cluster.now)

    # What must always hold.

    @invariant()
    def replay_from_empty_equals_live_state(self) -> None:
        replay = Replay()
        for records, base in self.cluster.log:
            last = base + len(records) - 1
            replay.replay_batch(records, last_offset=last, epoch=1)
            replay.commit(last)
        assert replay.latest == self.cluster.core.latest
        assert replay.stable == self.cluster.core.stable

    @invariant()
    def a_snapshot_reloads_to_the_same_image(self) -> None:
        image = EMPTY_IMAGE
        for record, version in records_of(self.cluster.core.stable):
            read, _ = decode_metadata_record(encode_metadata_record(record, version))
            image = apply(image, read)
        assert image.same_content(self.cluster.core.stable)

    @invariant()
    def states_follow_their_tables(self) -> None:
        self.transitions.follow(self.cluster.log)

    @invariant()
    def the_log_alone_explains_every_election_as_the_journal_does(self) -> None:
        history = History(EMPTY_IMAGE, lambda *_: True, events_max=10_000)
        for records, base in self.cluster.log:
            last = base + len(records) - 1
            history.feed(records, base_offset=base, last_offset=last, epoch=1, at_ms=base)
        assert history.image == self.cluster.core.latest
        check_against_journal(history, self.cluster.core.journal)

    @invariant()
    def partitions_are_sound(self) -> None:
        image = self.cluster.core.latest
        assert {t.name: t.id for t in image.topics_by_id.values()} == dict(image.topics_by_name)
        for topic in image.topics_by_id.values():
            assert sorted(topic.partitions) == list(range(len(topic.partitions)))
            for partition in topic.partitions.values():
                self.check(partition)

    def check(self, partition: PartitionState) -> None:
        image = self.cluster.core.latest
        replicas = set(partition.replicas)
        assert len(replicas) == len(partition.replicas) == len(partition.directories)
        assert set(partition.isr) <= replicas
        assert set(partition.elr) <= replicas
        assert not set(partition.isr) & set(partition.elr)
        assert set(partition.adding_replicas) <= replicas
        assert set(partition.removing_replicas) <= replicas
        assert partition.leader == NO_LEADER or partition.leader in partition.isr
        assert partition.isr or partition.leader == NO_LEADER
        assert len(partition.last_known_elr) <= 1
        if not self.elr_always_on:
            return
        for member in partition.isr:
            broker = image.brokers.get(member)
            assert broker is not None
            assert not broker.fenced

    @precondition(lambda self: len(self.cluster.log) > 1)
    @invariant()
    def every_election_names_its_reason(self) -> None:
        for entry in self.cluster.core.journal.entries():
            election = entry.election
            assert election.reason.cause
            assert election.leader == NO_LEADER or election.leader in election.reason.candidates


TestController = ControllerMachine.TestCase
TestController.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
