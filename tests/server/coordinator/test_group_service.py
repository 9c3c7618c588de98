"""The group coordinator: loading, waiting for commits, losing leadership, failed appends."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.java_hash import java_string_hash, partition_of
from sparkraft.coordinator.internal_topics import GROUP_METADATA_TOPIC
from sparkraft.coordinator.steps import PIECE_UNITS
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import Encoded, decode, encode
from sparkraft.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparkraft.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from sparkraft.protocol.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from sparkraft.protocol.messages.k12_heartbeat import HeartbeatRequest
from sparkraft.protocol.messages.k13_leave_group import LeaveGroupRequest
from sparkraft.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from sparkraft.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from sparkraft.protocol.messages.k16_list_groups import ListGroupsRequest
from sparkraft.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from sparkraft.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from sparkraft.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from sparkraft.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from sparkraft.records.control import ControlType, EndTransaction, end_transaction_batch
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.server.coordinator import group_service
from tests.coordinator.consumer_world import with_topic
from tests.server.coordinator.fake_broker import TOPIC_ID, FakeBroker, image_without_topics

WAIT_SECONDS = 60


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await test()

    asyncio.run(bounded())


def commit(offset: int, topic: str = "t", partition: int = 0) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)]
    return OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)]
    )


def fetch(group: str = "g", **words: Any) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], **words
    )


def error_of_commit(response: Any) -> ErrorCode:
    return ErrorCode(response.topics[0].partitions[0].error_code)


def offset_of(response: Any) -> int:
    return int(response.groups[0].topics[0].partitions[0].committed_offset)


def join(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def sync(member_id: str) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")],
    )


@pytest.mark.parametrize(
    ("group", "hashed", "partition"),
    [
        ("", 0, 0),
        ("g", 103, 3),
        ("my-group", -1906497762, 12),
        ("polygenelubricants", -(1 << 31), 0),
        ("grüße-日本", 346453725, 25),
        ("\U0001f600", 1772899, 49),
    ],
)
def test_a_group_belongs_to_the_partition_java_says(
    group: str, hashed: int, partition: int
) -> None:
    assert java_string_hash(group) == hashed
    assert partition_of(group, 50) == partition


def test_what_was_committed_is_there_after_the_log_is_loaded() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        assert error_of_commit(broker.ask(ApiKey.OFFSET_COMMIT, commit(5), 9)) is ErrorCode.NONE
        assert offset_of(broker.ask(ApiKey.OFFSET_FETCH, fetch(), 9)) == 5
        broker.lead(1)
        loading = broker.ask(ApiKey.OFFSET_FETCH, fetch(), 9)
        assert loading.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        listing = broker.ask(ApiKey.LIST_GROUPS, ListGroupsRequest())
        assert listing.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        beat = broker.ask(ApiKey.HEARTBEAT, HeartbeatRequest(group_id="g", member_id="m"))
        assert beat.error_code == ErrorCode.NONE
        await asyncio.gather(*broker.host.tasks)
        assert offset_of(broker.ask(ApiKey.OFFSET_FETCH, fetch(), 9)) == 5

    run(test)


def test_what_was_loaded_is_told_only_once_it_is_committed() -> None:
    """A new leader may have offsets that its predecessor never committed; they may be lost."""

    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        assert error_of_commit(broker.ask(ApiKey.OFFSET_COMMIT, commit(5), 9)) is ErrorCode.NONE
        broker.host.sync_by_hand = True
        broker.lead(1)
        await asyncio.gather(*broker.host.tasks)
        answer = asyncio.ensure_future(broker.ask(ApiKey.OFFSET_FETCH, fetch(), 9))
        await asyncio.sleep(0)
        assert not answer.done()
        broker.host.sync()
        assert offset_of(await answer) == 5

    run(test)


def test_a_generation_that_was_loaded_is_told_only_once_it_is_committed() -> None:
    """If it were lost with this leader, members of an older generation could commit."""

    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        required = broker.ask(ApiKey.JOIN_GROUP, join())
        joined = await broker.ask(ApiKey.JOIN_GROUP, join(required.member_id))
        assert broker.ask(ApiKey.SYNC_GROUP, sync(joined.member_id)).assignment == b"mine"
        broker.host.sync_by_hand = True
        broker.lead(1)
        await asyncio.gather(*broker.host.tasks)
        synced = asyncio.ensure_future(broker.ask(ApiKey.SYNC_GROUP, sync(joined.member_id)))
        rejoined = asyncio.ensure_future(broker.ask(ApiKey.JOIN_GROUP, join()))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not synced.done()
        assert not rejoined.done()
        broker.host.sync()
        assert (await synced).assignment == b"mine"
        assert (await rejoined).error_code == ErrorCode.MEMBER_ID_REQUIRED
        broker.groups.close()

    run(test)


def test_transactions_and_unknown_records_of_another_broker_are_read() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        broker.ask(ApiKey.OFFSET_COMMIT, commit(5), 9)
        log = broker.host
        strange = BatchBuilder()
        strange.append(1, struct.pack(">h", 99), b"?")
        strange.append(2, struct.pack(">hh", 10, 1) + b"k", b"\0\0epoch")
        log.append(strange.build())
        committed = log.batches[0]
        for producer_id, offset, kind in ((7, 6, ControlType.ABORT), (8, 9, ControlType.COMMIT)):
            batch = BatchBuilder(
                producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
            )
            (record,) = decode_records(committed)
            assert record.value is not None
            value = record.value[:2] + struct.pack(">q", offset) + record.value[10:]
            batch.append(3, record.key, value)
            log.append(batch.build())
            log.append(
                end_transaction_batch(
                    EndTransaction(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=4
                )
            )
        broker.lead(1)
        await asyncio.gather(*broker.host.tasks)
        assert offset_of(broker.ask(ApiKey.OFFSET_FETCH, fetch(), 9)) == 9
        groups = broker.ask(ApiKey.LIST_GROUPS, ListGroupsRequest()).groups
        assert [(one.group_id, one.group_type) for one in groups] == [
            ("g", "classic"),
            ("k", "share"),
        ]

    run(test)


def test_a_partition_with_groups_of_other_types_is_handed_over_until_it_is_led_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        monkeypatch.setattr(group_service, "HAND_OVER_MS", 1)
        broker = FakeBroker()
        builder = BatchBuilder()
        for number in (11, 17):  # the metadata of a share group and of a streams group
            group = b"of-%d" % number
            builder.append(0, struct.pack(">hh", number, len(group)) + group, b"\0\0")
        broker.host.append(builder.build())
        broker.lead(0)
        await broker.has_moved.wait()
        assert len(broker.moves) > 2
        assert set(broker.moves) == {(GROUP_METADATA_TOPIC, 0, frozenset({"share", "streams"}))}
        broker.lead(None)
        await asyncio.gather(*broker.host.tasks)

    run(test)


def test_a_partition_without_such_groups_stays() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        assert error_of_commit(broker.ask(ApiKey.OFFSET_COMMIT, commit(5), 9)) is ErrorCode.NONE
        broker.lead(1)
        await asyncio.gather(*broker.host.tasks)
        assert broker.moves == []

    run(test)


def test_a_log_that_can_not_be_read_is_not_served() -> None:
    async def test() -> None:
        broker = FakeBroker()
        torn = BatchBuilder()
        torn.append(1, b"\0\1\0\5a", b"")
        broker.host.append(torn.build())
        broker.lead(0)
        await asyncio.gather(*broker.host.tasks)
        answer = broker.ask(ApiKey.OFFSET_FETCH, fetch(), 9)
        assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR

    run(test)


def test_answers_wait_until_what_they_rest_on_is_durable() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        partition = broker.host
        partition.sync_by_hand = True
        committing = asyncio.ensure_future(broker.ask(ApiKey.OFFSET_COMMIT, commit(5), 9))
        fetching = asyncio.ensure_future(broker.ask(ApiKey.OFFSET_FETCH, fetch(), 9))
        await asyncio.sleep(0)
        assert not committing.done()
        assert not fetching.done()
        partition.sync()
        assert error_of_commit(await committing) is ErrorCode.NONE
        assert offset_of(await fetching) == 5
        # Nothing is under way now: the next read is answered at once.
        assert offset_of(broker.ask(ApiKey.OFFSET_FETCH, fetch(), 9)) == 5

    run(test)


def test_a_cancelled_request_leaves_the_others_waiting() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        partition = broker.host
        partition.sync_by_hand = True
        first = asyncio.ensure_future(broker.ask(ApiKey.OFFSET_COMMIT, commit(5), 9))
        second = asyncio.ensure_future(broker.ask(ApiKey.OFFSET_FETCH, fetch(), 9))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        partition.sync()
        assert offset_of(await second) == 5

    run(test)


def test_what_is_not_durable_in_time_is_refused() -> None:
    async def test() -> None:
        broker = FakeBroker(offsets_commit_timeout_ms="1")
        broker.lead(0)
        broker.host.sync_by_hand = True
        with pytest.raises(KafkaError) as refused:
            await broker.ask(ApiKey.OFFSET_COMMIT, commit(5), 9)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        answer = await broker.ask(ApiKey.OFFSET_FETCH, fetch(), 9)
        assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR

    run(test)


def test_a_failed_disk_refuses_the_commit() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        partition = broker.host
        partition.sync_by_hand = True
        committing = asyncio.ensure_future(broker.ask(ApiKey.OFFSET_COMMIT, commit(5), 9))
        await asyncio.sleep(0)
        partition.sync(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        with pytest.raises(KafkaError) as refused:
            await committing
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

    run(test)


@pytest.mark.parametrize(
    ("refused", "translated"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_refused_write_is_told_in_a_coordinators_words(
    refused: ErrorCode, translated: ErrorCode
) -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        broker.host.refuse = refused
        assert error_of_commit(broker.ask(ApiKey.OFFSET_COMMIT, commit(5), 9)) is translated
        broker.host.refuse = None
        assert offset_of(broker.ask(ApiKey.OFFSET_FETCH, fetch(), 9)) == -1

    run(test)


def test_a_group_meets_and_goes_to_the_new_leader() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        required = broker.ask(ApiKey.JOIN_GROUP, join())
        assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = await broker.ask(ApiKey.JOIN_GROUP, join(required.member_id))
        assert (joined.generation_id, joined.leader) == (1, joined.member_id)
        synced = broker.ask(ApiKey.SYNC_GROUP, sync(joined.member_id))
        assert synced.assignment == b"mine"
        (described,) = broker.ask(
            ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["g"])
        ).groups
        assert described.members[0].client_host == "/127.0.0.1"
        kinds = [one.kind for one in broker.groups.journal.entries("g")]
        assert kinds == ["joined", "leader", "assignor", "generation"]
        # A second member makes the first rejoin; before that leadership is lost.
        other = broker.ask(ApiKey.JOIN_GROUP, join())
        parked = broker.ask(ApiKey.JOIN_GROUP, join(other.member_id))
        broker.lead(None)
        assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
        beat = broker.ask(
            ApiKey.HEARTBEAT,
            HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id),
        )
        assert beat.error_code == ErrorCode.NOT_COORDINATOR
        broker.lead(2)
        await asyncio.gather(*broker.host.tasks)
        beat = broker.ask(
            ApiKey.HEARTBEAT,
            HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id),
        )
        assert beat.error_code == ErrorCode.NONE
        broker.groups.close()

    run(test)


async def answered(answer: Any) -> Any:
    """The response, also if its first piece took long."""
    return await answer if isinstance(answer, Awaitable) else answer


async def broker_with_a_consumer_group() -> FakeBroker:
    """Group `g` has the member `m` of the consumer protocol."""
    broker = FakeBroker()
    features = EMPTY_IMAGE.features.set("group.version", 1)
    broker.image = with_topic(EMPTY_IMAGE._replace(features=features), "t", 1)
    broker.lead(0)
    beaten = await answered(broker.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, first_heartbeat()))
    assert beaten.error_code == ErrorCode.NONE
    return broker


def first_heartbeat() -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


def classic_join() -> JoinGroupRequest:
    """A classic member that subscribes to `t`."""
    request = join()
    request.protocols[0].metadata = b"\0\0" + b"\0\0\0\1\0\1t" + b"\xff\xff\xff\xff"
    return request


def test_members_of_a_consumer_group_fetch_offsets_in_their_epoch() -> None:
    """GroupCoordinatorService.handleOffsetFetchException keeps the errors of members."""

    async def test() -> None:
        broker = await broker_with_a_consumer_group()
        joined = await answered(broker.ask(ApiKey.JOIN_GROUP, classic_join(), 3))
        assert joined.error_code == ErrorCode.NONE

        async def fetched(member_id: str, epoch: int) -> ErrorCode:
            request = fetch()
            request.groups[0].member_id, request.groups[0].member_epoch = member_id, epoch
            answer = await answered(broker.ask(ApiKey.OFFSET_FETCH, request, 9))
            return ErrorCode(answer.groups[0].error_code)

        current = joined.generation_id
        assert await fetched(joined.member_id, current) is ErrorCode.NONE
        assert await fetched(joined.member_id, current + 1) is ErrorCode.ILLEGAL_GENERATION
        assert await fetched("m", 99) is ErrorCode.STALE_MEMBER_EPOCH
        assert await fetched("other", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        broker.groups.close()

    run(test)


@pytest.mark.parametrize("is_on", [True, False])
def test_without_the_feature_consumer_groups_are_unsupported(is_on: bool) -> None:
    """KIP-848: group.version gates both APIs; the connection stays open."""

    async def test() -> None:
        broker = FakeBroker()
        features = EMPTY_IMAGE.features.set("group.version", int(is_on))
        broker.image = with_topic(EMPTY_IMAGE._replace(features=features), "t", 1)
        broker.lead(0)
        expected = ErrorCode.NONE if is_on else ErrorCode.UNSUPPORTED_VERSION
        beaten = await answered(broker.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, first_heartbeat()))
        assert beaten.error_code == expected
        request = ConsumerGroupDescribeRequest(group_ids=["g"])
        described = await answered(broker.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, request))
        assert [one.error_code for one in described.groups] == [expected]
        broker.groups.close()

    run(test)


@pytest.mark.parametrize("commits_later", [True, False])
def test_a_join_that_waits_for_its_commit_fails_when_leadership_ends(commits_later: bool) -> None:
    async def test() -> None:
        broker = await broker_with_a_consumer_group()
        broker.host.sync_by_hand = True
        waiting = broker.ask(ApiKey.JOIN_GROUP, classic_join(), 3)
        for _ in range(1_000):  # its first pieces may take long
            if broker.host.waiting is not None:
                break
            await asyncio.sleep(0)
        assert not waiting.done()
        broker.lead(None)
        if commits_later:
            broker.host.sync()
        else:
            broker.host.sync(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        with pytest.raises(KafkaError) as refused:
            await waiting
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

    run(test)


def test_a_leader_of_an_older_epoch_does_not_write() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        broker.host.leader_epoch = 1  # The service is not notified yet.
        assert (
            error_of_commit(broker.ask(ApiKey.OFFSET_COMMIT, commit(5), 9))
            is ErrorCode.NOT_COORDINATOR
        )
        assert broker.host.batches == []

    run(test)


def test_an_election_of_an_older_epoch_is_ignored() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(2)
        runtime = broker.groups.runtimes[0]
        broker.groups.on_leadership(GROUP_METADATA_TOPIC, 0, 1)
        assert broker.groups.runtimes[0] is runtime
        assert runtime.is_serving
        broker.lead(3)
        assert broker.groups.runtimes[0].leader_epoch == 3
        assert not runtime.is_serving

    run(test)


def test_topics_and_partitions_that_are_not_there_are_refused_beside_the_others() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        request = commit(5)
        request.topics += commit(6, topic="gone").topics
        request.topics[0].partitions += commit(7, partition=9).topics[0].partitions
        answer = broker.ask(ApiKey.OFFSET_COMMIT, request, 9)
        got = {
            (topic.name, one.partition_index): ErrorCode(one.error_code)
            for topic in answer.topics
            for one in topic.partitions
        }
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert got == {("t", 0): ErrorCode.NONE, ("t", 9): missing, ("gone", 0): missing}

    run(test)


@pytest.mark.parametrize("is_led", [True, False])
def test_an_error_of_the_group_leaves_theirs_to_partitions_that_do_not_exist(is_led: bool) -> None:
    """As in Kafka's OffsetCommitResponse.Builder."""

    async def test() -> None:
        broker = FakeBroker()
        if is_led:
            broker.lead(0)
        request = commit(5)
        request.generation_id_or_member_epoch = 4
        request.topics += commit(6, topic="gone").topics
        answer = broker.ask(ApiKey.OFFSET_COMMIT, request, 8)
        codes = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
        of_group = ErrorCode.ILLEGAL_GENERATION if is_led else ErrorCode.NOT_COORDINATOR
        assert codes == {"t": of_group, "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    run(test)


def test_offsets_are_committed_and_fetched_by_topic_id() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        request = commit(5)
        request.topics[0].name, request.topics[0].topic_id = "", TOPIC_ID
        assert error_of_commit(broker.ask(ApiKey.OFFSET_COMMIT, request, 10)) is ErrorCode.NONE
        by_id = fetch()
        assert by_id.groups[0].topics is not None
        by_id.groups[0].topics[0].topic_id = TOPIC_ID
        by_id.groups[0].topics.append(
            OffsetFetchRequestTopics(topic_id=bytes(15) + b"x", partition_indexes=[3])
        )
        answer = broker.ask(ApiKey.OFFSET_FETCH, by_id, 10)
        known, unknown = answer.groups[0].topics
        assert (known.topic_id, known.partitions[0].committed_offset) == (TOPIC_ID, 5)
        assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        answer = broker.ask(ApiKey.OFFSET_FETCH, everything, 10)
        assert [one.topic_id for one in answer.groups[0].topics] == [TOPIC_ID]

    run(test)


def test_old_versions_ask_for_one_group() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        broker.ask(ApiKey.OFFSET_COMMIT, commit(5), 9)
        request = OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        )
        answer = broker.ask(ApiKey.OFFSET_FETCH, request, 5)
        assert [one.committed_offset for one in answer.topics[0].partitions] == [5, -1]
        broker.lead(None)
        assert broker.ask(ApiKey.OFFSET_FETCH, request, 2).error_code == ErrorCode.NOT_COORDINATOR
        oldest = broker.ask(ApiKey.OFFSET_FETCH, request, 1)
        assert {one.error_code for one in oldest.topics[0].partitions} == {
            ErrorCode.NOT_COORDINATOR
        }
        left = broker.ask(ApiKey.LEAVE_GROUP, LeaveGroupRequest(group_id="g", member_id="m"), 1)
        assert left.error_code == ErrorCode.NOT_COORDINATOR

    run(test)


def test_leaving_a_group_that_is_not_there_is_an_error_of_the_member() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        left = broker.ask(ApiKey.LEAVE_GROUP, LeaveGroupRequest(group_id="g", member_id="m"), 1)
        assert left.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run(test)


def test_deleting_a_group_a_topic_and_an_offset() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        broker.ask(ApiKey.OFFSET_COMMIT, commit(5), 9)
        one = [OffsetDeleteRequestPartition(partition_index=0)]
        request = OffsetDeleteRequest(
            group_id="g",
            topics=[OffsetDeleteRequestTopic(name=name, partitions=one) for name in ("t", "gone")],
        )
        answer = broker.ask(ApiKey.OFFSET_DELETE, request)
        assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {
            "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "t": ErrorCode.NONE,
        }
        broker.ask(ApiKey.OFFSET_COMMIT, commit(6), 9)
        before = broker.image
        broker.groups.on_image(before, image_without_topics(), None)
        assert offset_of(broker.ask(ApiKey.OFFSET_FETCH, fetch(), 9)) == -1
        names = DeleteGroupsRequest(groups_names=["g", "g", "h"])
        results = broker.ask(ApiKey.DELETE_GROUPS, names).results
        assert [(one.group_id, one.error_code) for one in results] == [
            ("g", ErrorCode.NONE),
            ("h", ErrorCode.GROUP_ID_NOT_FOUND),
        ]

    run(test)


def test_bounds_and_names_are_checked_before_the_group_is_asked() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        quick = join()
        quick.session_timeout_ms = 5_999
        answer = broker.ask(ApiKey.JOIN_GROUP, quick)
        assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        nameless = join()
        nameless.group_id = ""
        assert broker.ask(ApiKey.JOIN_GROUP, nameless).error_code == ErrorCode.INVALID_GROUP_ID
        answer = broker.ask(ApiKey.SYNC_GROUP, SyncGroupRequest(group_id="g", member_id="m"), 5)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    run(test)


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_publishes_or_drops_pending_offsets_once_it_is_durable(committed: bool) -> None:
    async def test() -> None:
        broker = FakeBroker()
        host = broker.host
        broker.lead(0)
        broker.ask(ApiKey.OFFSET_COMMIT, commit(5), 9)
        (record,) = decode_records(host.batches[0])
        assert record.value is not None
        pending = BatchBuilder(
            producer_id=40, producer_epoch=0, base_sequence=-1, transactional=True
        )
        value = record.value[:2] + struct.pack(">q", 7) + record.value[10:]
        pending.append(3, record.key, value)
        host.append(pending.build())
        broker.lead(1)
        await asyncio.gather(*host.tasks)
        assert offset_of(broker.ask(ApiKey.OFFSET_FETCH, fetch(), 9)) == 5
        host.sync_by_hand = True
        kind = ControlType.COMMIT if committed else ControlType.ABORT
        marker = end_transaction_batch(
            EndTransaction(kind, 1), producer_id=40, producer_epoch=0, timestamp=4
        )

        async def end() -> None:
            await broker.groups.end_transaction(
                0, marker, 40, committed=committed, check=lambda: None
            )

        ending = asyncio.ensure_future(end())
        await asyncio.sleep(0)
        assert not ending.done()
        host.sync()
        await ending
        assert offset_of(broker.ask(ApiKey.OFFSET_FETCH, fetch(), 9)) == (7 if committed else 5)
        broker.lead(None)
        with pytest.raises(KafkaError) as caught:
            await end()
        assert caught.value.code is ErrorCode.NOT_COORDINATOR

    run(test)


MEMBERS = 5 * PIECE_UNITS


def test_the_leader_of_a_large_group_gets_all_members_encoded_in_pieces() -> None:
    """And its description has all of them."""

    async def test() -> None:
        broker = FakeBroker(group_initial_rebalance_delay_ms="100")
        broker.lead(0)
        request = join()
        request.session_timeout_ms = 60_000
        answers = [broker.ask(ApiKey.JOIN_GROUP, request, version=3) for _ in range(MEMBERS)]
        joined = [await answer for answer in answers]
        encoded = [each for each in joined if isinstance(each.members, Encoded)]
        (leader,) = [decode(JoinGroupResponse, 3, encode(each, 3)) for each in encoded]
        ids = [each.member_id for each in leader.members]
        assert sorted(ids) == sorted(each.member_id for each in joined)
        assert {each.generation_id for each in joined} == {1}
        asked = DescribeGroupsRequest(groups=["g", "g"])
        described = broker.ask(ApiKey.DESCRIBE_GROUPS, asked)
        if isinstance(described, Awaitable):
            described = await described
        assert [[m.member_id for m in each.members] for each in described.groups] == [ids, ids]

    run(test)
