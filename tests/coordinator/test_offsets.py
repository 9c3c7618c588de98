"""Committed offsets: transactions, expiry, topic ids, and groups of other protocols."""

import struct
from dataclasses import replace

import pytest

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.base.ids import Offset, Uuid
from sparkraft.base.steps import complete
from sparkraft.coordinator.group.config import GroupConfig
from sparkraft.coordinator.group.decision import Peer
from sparkraft.coordinator.group.describe import ListFilter
from sparkraft.coordinator.group.records import GroupRecord, decode_record, encode_record
from sparkraft.coordinator.group.shard import GroupShard
from sparkraft.protocol.messages.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from sparkraft.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparkraft.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from sparkraft.protocol.messages.k16_list_groups import ListGroupsRequest
from sparkraft.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from sparkraft.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.coordinator.world import Client, World

TOPIC_ID = Uuid(bytes(range(16)))
OTHER_ID = Uuid(bytes(range(1, 17)))


def commit_record(offset: int, topic: str = "t", group: str = "g") -> GroupRecord:
    return GroupRecord(
        key=OffsetCommitKey(group=group, topic=topic, partition=0),
        value=OffsetCommitValue(offset=offset),
        value_version=3,
    )


def fetched(shard: GroupShard, *, require_stable: bool = False) -> tuple[int, ErrorCode]:
    request = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    )
    found = shard.fetch_offsets(request, require_stable=require_stable)
    partition = found.topics[0].partitions[0]
    return partition.committed_offset, ErrorCode(partition.error_code)


def test_a_pending_transactional_offset_is_invisible_until_its_marker() -> None:
    shard = World().shard
    shard.replay(Offset(0), commit_record(5))
    shard.replay(Offset(1), commit_record(9), 77)
    assert fetched(shard) == (5, ErrorCode.NONE)
    assert fetched(shard, require_stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    complete(shard.replay_end_of_transaction(77, committed=True))
    assert fetched(shard, require_stable=True) == (9, ErrorCode.NONE)


def test_an_aborted_offset_never_shows() -> None:
    shard = World().shard
    shard.replay(Offset(0), commit_record(9), 77)
    complete(shard.replay_end_of_transaction(77, committed=False))
    assert fetched(shard, require_stable=True) == (-1, ErrorCode.NONE)


def test_of_a_commit_and_a_transactional_one_the_later_in_the_log_wins() -> None:
    shard = World().shard
    shard.replay(Offset(0), commit_record(9), 77)
    shard.replay(Offset(1), commit_record(5))
    complete(shard.replay_end_of_transaction(77, committed=True))
    assert fetched(shard) == (5, ErrorCode.NONE)


def test_a_tombstone_removes_what_is_pending_too() -> None:
    shard = World().shard
    shard.replay(Offset(0), commit_record(9), 77)
    shard.replay(Offset(1), replace(commit_record(9), value=None))
    complete(shard.replay_end_of_transaction(77, committed=True))
    assert fetched(shard) == (-1, ErrorCode.NONE)


def test_a_refused_offset_of_a_transaction_is_not_pending() -> None:
    """KAFKA-16371: no marker would ever end it."""
    world = World(GroupConfig(offset_metadata_max_chars=3))
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=77,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=9, committed_metadata="abcd"
                    )
                ],
            )
        ],
    )
    shard = world.shard
    response = world.do(shard.handle_txn_offset_commit(request, {"t": TOPIC_ID}, world.now))
    refused = response.topics[0].partitions[0].error_code
    assert refused == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert not shard.offsets.is_pending("g", "t", 0)
    assert fetched(shard, require_stable=True) == (-1, ErrorCode.NONE)


@pytest.mark.parametrize("version", [3, 4])
def test_commits_of_both_kinds_are_written_in_the_version_of_the_broker(version: int) -> None:
    """3 in ZooKeeper mode, as by Kafka 3.9; 4 has topic ids."""
    world = World(GroupConfig(offset_commit_value_version=version))
    assert world.commit(Client("simple"), {("t", 0): 5}) is ErrorCode.NONE
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=77,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=9)],
            )
        ],
    )
    world.do(world.shard.handle_txn_offset_commit(request, {"t": TOPIC_ID}, world.now))
    written = [int.from_bytes(value[:2]) for _, value in world.log if value is not None]
    assert written == [version, version]


@pytest.mark.parametrize("needs_offsets", [True, False])
def test_a_group_that_kafka_3_9_has_deleted_does_not_return(needs_offsets: bool) -> None:
    """It writes tombstones for the offsets only, if the group never had members."""
    shard = World(GroupConfig(needs_offsets=needs_offsets)).shard
    shard.replay(Offset(0), commit_record(9))
    shard.replay(Offset(1), commit_record(9, topic="u"))
    shard.replay(Offset(2), replace(commit_record(9), value=None))
    assert shard.group_ids() == ["g"], "it has an offset of another topic"
    shard.replay(Offset(3), replace(commit_record(9, topic="u"), value=None))
    assert shard.group_ids() == ([] if needs_offsets else ["g"])
    # A pending offset may still be committed.
    shard.replay(Offset(4), commit_record(9), 77)
    shard.replay(Offset(5), replace(commit_record(9, topic="u"), value=None))
    assert shard.group_ids() == ["g"]


def test_an_offset_with_a_pending_one_does_not_expire() -> None:
    """KAFKA-19163: neither does its group; both do after the transaction."""
    config = GroupConfig(offsets_retention_ms=10_000, offsets_retention_check_interval_ms=1_000)
    world = World(config)
    world.commit(Client("outside"), {("t", 0): 3})
    world.shard.replay(Offset(100), commit_record(9), 77)
    world.pass_time(15_000)
    assert world.fetch([("t", 0)]) == {("t", 0): 3}
    complete(world.shard.replay_end_of_transaction(77, committed=False))
    world.pass_time(2_000)
    assert world.shard.group_ids() == []


def test_a_value_of_a_newer_version_is_not_read() -> None:
    """KAFKA-18672: its fields are unknown, so a load fails instead."""
    newest = max(OffsetCommitValue.SCHEMA.versions)
    key, value = encode_record(replace(commit_record(5), value_version=newest))
    assert value is not None
    assert decode_record(key, value) is not None
    with pytest.raises(DecodeError):
        decode_record(key, struct.pack(">h", newest + 1) + value[2:])


def test_an_offset_of_an_earlier_topic_of_that_name_is_not_given() -> None:
    world = World()
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                topic_id=TOPIC_ID,
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=4)],
            )
        ],
    )
    peer = Peer(client_id="c", client_host="/h", version=10)
    world.do(world.shard.handle_offset_commit(request, peer, world.now))
    for shard in (world.shard, world.replayed()):
        for asked, offset in ((TOPIC_ID, 4), (Uuid.ZERO, 4), (OTHER_ID, -1)):
            group = OffsetFetchRequestGroup(
                group_id="g",
                topics=[OffsetFetchRequestTopics(name="t", topic_id=asked, partition_indexes=[0])],
            )
            found = shard.fetch_offsets(group, require_stable=False)
            assert found.topics[0].partitions[0].committed_offset == offset


def test_a_client_that_asked_for_a_retention_gets_it() -> None:
    world = World(GroupConfig(offsets_retention_check_interval_ms=1_000))
    world.commit(Client("outside"), {("t", 0): 3}, retention_ms=5_000)
    world.pass_time(4_000)
    assert world.fetch([("t", 0)]) == {("t", 0): 3}
    world.pass_time(3_000)
    assert world.fetch([("t", 0)]) == {("t", 0): -1}
    assert world.state() == "absent"
    assert world.replayed().group_ids() == []


def test_a_retention_beyond_all_time_is_for_ever() -> None:
    world = World(GroupConfig(offsets_retention_check_interval_ms=1_000))
    # What no int64 holds could not be written to the log.
    assert world.commit(Client("outside"), {("t", 0): 3}, retention_ms=2**63 - 1) == 0
    world.pass_time(100_000)
    assert world.fetch([("t", 0)]) == {("t", 0): 3}


def test_offsets_of_a_simple_group_expire_by_the_time_of_their_commit() -> None:
    config = GroupConfig(offsets_retention_ms=10_000, offsets_retention_check_interval_ms=1_000)
    world = World(config)
    world.commit(Client("outside"), {("t", 0): 3})
    world.pass_time(8_000)
    world.commit(Client("outside"), {("t", 1): 4})
    world.pass_time(4_000)
    assert world.fetch(None) == {("t", 1): 4}


def test_too_long_metadata_refuses_its_partition_only() -> None:
    world = World(GroupConfig(offset_metadata_max_chars=3))
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=1, committed_metadata=text
        )
        for index, text in enumerate(["abc", "abcd"])
    ]
    request = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)]
    )
    peer = Peer(client_id="c", client_host="/h", version=9)
    response = world.do(world.shard.handle_offset_commit(request, peer, world.now))
    codes = [one.error_code for one in response.topics[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.fetch(None) == {("t", 0): 1}


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_a_group_that_is_not_there_can_not_commit(
    version: int, code: ErrorCode
) -> None:
    world = World()
    request = OffsetCommitRequest(group_id="g", member_id="m", generation_id_or_member_epoch=1)
    peer = Peer(client_id="c", client_host="/h", version=version)
    with pytest.raises(KafkaError) as refused:
        world.shard.handle_offset_commit(request, peer, world.now)
    assert refused.value.code is code


def subscription(*topics: str) -> bytes:
    body = b"".join(struct.pack(">h", len(one)) + one.encode() for one in topics)
    return struct.pack(">hi", 3, len(topics)) + body + b"later versions say more"


def delete_offsets(world: World, topic: str) -> ErrorCode:
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
        ],
    )
    response = world.do(world.shard.handle_offset_delete(request))
    return ErrorCode(response.topics[0].partitions[0].error_code)


def test_offsets_of_a_subscribed_topic_can_not_be_deleted() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=0))
    client = world.client("A")
    client.version, client.protocols = 3, {"range": subscription("t", "u")}
    world.join(client)
    world.pass_time(0)
    world.sync(client, {client.member_id: b"x"})
    world.commit(client, {("t", 0): 1, ("old", 0): 2})
    assert delete_offsets(world, "t") is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offsets(world, "old") is ErrorCode.NONE
    assert world.fetch(None) == {("t", 0): 1}
    assert world.replayed().group("g").is_subscribed_to("u")  # type: ignore[union-attr]


def test_deleting_offsets_of_no_group_says_so() -> None:
    with pytest.raises(KafkaError) as refused:
        delete_offsets(World(), "t")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


# ---- groups of other protocols


def foreign_key(record_type: int, group: str = "g", rest: bytes = b"") -> bytes:
    return struct.pack(">hh", record_type, len(group)) + group.encode() + rest


def world_with_foreign_group(*, with_member: bool) -> World:
    world = World(GroupConfig(initial_rebalance_delay_ms=0))
    world.log.append((foreign_key(17), b"\0\0epoch"))
    if with_member:
        world.log.append((foreign_key(19, rest=b"\0\1m"), b"\0\0member"))
    world.reload()
    return world


def listed(world: World, *types: str) -> list[tuple[str, str, str]]:
    request = ListGroupsRequest(types_filter=list(types))
    found = world.shard.list_groups(world.shard.group_ids(), ListFilter.of(request), world.now)
    return [(one.group_id, one.group_type, one.group_state) for one in found]


def test_a_group_of_another_protocol_is_listed_and_kept() -> None:
    world = world_with_foreign_group(with_member=True)
    assert listed(world) == [("g", "streams", "Stable")]
    assert listed(world, "Streams") == [("g", "streams", "Stable")]
    assert listed(world, "classic") == []
    assert world.delete_group() is ErrorCode.NON_EMPTY_GROUP
    client = world.client("A")
    world.join(client)
    assert world.events[-1] == "A < join: INCONSISTENT_GROUP_PROTOCOL id=-"


def test_members_of_another_protocol_count_as_gone_after_a_session() -> None:
    world = world_with_foreign_group(with_member=True)
    world.pass_time(45_000)
    assert listed(world) == [("g", "streams", "Empty")]
    world.commit(Client("outside"), {("t", 0): 1})
    assert world.delete_group() is ErrorCode.NONE
    assert world.replayed().group_ids() == []
    assert world.fetch(None) == {}


def test_a_classic_member_takes_over_an_empty_group_of_another_protocol() -> None:
    world = world_with_foreign_group(with_member=False)
    world.commit(Client("outside"), {("t", 0): 1})
    client = world.client("A")
    world.join(client)
    world.join(client)
    world.pass_time(0)
    world.sync(client, {client.member_id: b"x"})
    for shard in (world.shard, world.replayed()):
        (group,) = shard.list_groups(shard.group_ids(), ListFilter(), world.now)
        assert (group.group_type, group.group_state) == ("classic", "Stable")
    assert world.fetch(None) == {("t", 0): 1}


def test_a_failed_take_over_leaves_the_other_group() -> None:
    world = world_with_foreign_group(with_member=False)
    world.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    world.join(world.client("A"))
    assert listed(world) == [("g", "streams", "Empty")]


def test_offsets_read_before_their_group_of_another_protocol_stay_with_it() -> None:
    world = World()
    world.log.append(encode_record(commit_record(4)))
    world.log.append((foreign_key(11), b"\0\0epoch"))
    world.reload()
    assert listed(world) == [("g", "share", "Empty")]
    assert world.fetch([("t", 0)]) == {("t", 0): 4}


# ---- bytes


def test_a_record_of_an_unknown_type_is_skipped() -> None:
    assert decode_record(struct.pack(">h", 99) + b"whatever", b"value") is None


@pytest.mark.parametrize(
    "key", [b"", b"\0", b"\0\1\0\5abc", foreign_key(17)[:-1], b"\0\x11\0\1\xff"]
)
def test_a_torn_key_is_no_record(key: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(key, b"")


@pytest.mark.parametrize("value", [b"\0\0epoch", None])
def test_a_record_of_another_protocol_keeps_its_bytes(value: bytes | None) -> None:
    key = foreign_key(17, rest=b"more")
    record = decode_record(key, value)
    assert record is not None
    assert encode_record(record) == (key, value)


def test_the_legacy_offset_record_is_read() -> None:
    key, value = encode_record(replace(commit_record(4), value_version=0))
    record = decode_record(b"\0\0" + key[2:], value)
    assert record is not None
    assert record.value.offset == 4


def test_records_have_kafkas_bytes() -> None:
    offset = GroupRecord(
        key=OffsetCommitKey(group="g", topic="t", partition=1),
        value=OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=7),
        value_version=3,
    )
    key, value = encode_record(offset)
    assert key.hex(" ") == "00 01 00 01 67 00 01 74 00 00 00 01"
    assert value is not None
    assert value.hex(" ") == (
        "00 03 00 00 00 00 00 00 00 05 00 00 00 02 00 01 6d 00 00 00 00 00 00 00 07"
    )
    group = GroupRecord(
        key=GroupMetadataKey(group="g"),
        value=GroupMetadataValue(protocol_type="c", generation=1, protocol=None, leader=None),
        value_version=3,
    )
    key, value = encode_record(group)
    assert key.hex(" ") == "00 02 00 01 67"
    assert value is not None
    assert value.hex(" ") == (
        "00 03 00 01 63 00 00 00 01 ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 00"
    )
