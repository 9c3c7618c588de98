"""What the declarations and the codec promise their users."""

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import API_INFO, OWN_KEYS_FROM, ApiKey
from sparkraft.protocol.codec import decode, decode_from, encode, encode_parts
from sparkraft.protocol.declare import parse_versions
from sparkraft.protocol.decode_source import write_decoder
from sparkraft.protocol.encode_source import write_encoder
from sparkraft.protocol.errors import EncodeError, UnsupportedFieldError, UnsupportedVersionError
from sparkraft.protocol.messages.group_records import GROUP_RECORDS
from sparkraft.protocol.messages.k00_produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from sparkraft.protocol.messages.k00_produce import LeaderIdAndEpoch as NewLeader
from sparkraft.protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from sparkraft.protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sparkraft.protocol.messages.k52_vote import VoteRequest
from sparkraft.protocol.messages.metadata_records import METADATA_RECORDS
from sparkraft.protocol.messages.share_records import SHARE_RECORDS
from sparkraft.protocol.messages.transaction_records import TRANSACTION_RECORDS
from sparkraft.protocol.reference_codec import Reader, Writer
from tests.protocol.strategies import Fill, message_classes, messages, versions_of

RECORDS = [
    *METADATA_RECORDS.values(),
    *(
        cls
        for types in (GROUP_RECORDS, TRANSACTION_RECORDS, SHARE_RECORDS)
        for pair in types.values()
        for cls in pair
    ),
]


@pytest.mark.parametrize("cls", [*message_classes(), *RECORDS], ids=lambda cls: cls.__name__)
def test_the_compiled_codec_does_what_the_careful_one_does(cls):
    @settings(
        max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.data())
    def check(data):
        version = data.draw(st.sampled_from(versions_of(cls)))
        flexible = version in cls.SCHEMA.flexible
        message = data.draw(messages(cls, version))
        slow = Writer(version=version, flexible=flexible)
        slow.message(message)
        fast = encode(message, version)
        assert fast == b"".join(slow.parts)
        read = Reader(fast, 0, version=version, flexible=flexible, budget=1_000_000)
        assert read.message(cls) == message == decode(cls, version, fast)

    check()


@pytest.mark.parametrize("cls", [*message_classes(), *RECORDS], ids=lambda cls: cls.__name__)
def test_defaults_and_filled_messages_survive_a_round_trip_in_every_version(cls):
    for version in versions_of(cls):
        for message in (Fill(version).message(cls), Fill(version, nulls=True).message(cls)):
            assert decode(cls, version, encode(message, version)) == message


def test_every_key_of_kafka_4_3_is_there_and_loads():
    assert sorted(k for k in API_INFO if k < OWN_KEYS_FROM) == [*range(93)]
    removed = [info.key for info in API_INFO.values() if not (info.is_kafka_4 or info.is_own)]
    assert removed == [4, 5, 6, 7]
    for key, info in API_INFO.items():
        assert info.key is key
        for cls in (info.request_class(), info.response_class()):
            assert cls.SCHEMA.key == key
            assert cls.SCHEMA.versions == (info.min_version, info.max_version)


def test_the_only_unstable_latest_version_is_that_of_init_producer_id():
    unstable = [key for key, info in API_INFO.items() if info.latest_version_unstable]
    assert unstable == [ApiKey.INIT_PRODUCER_ID]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 126, 127, 128, 129, 3000, 20_000])
def test_arrays_of_numbers_of_any_length_survive(count):
    partition = MetadataResponsePartition(
        replica_nodes=list(range(count)), isr_nodes=[7] * (count // 2), offline_replicas=[1]
    )
    topic = MetadataResponseTopic(name="t" * min(count, 1000), partitions=[partition, partition])
    for version in (8, 12):
        message = MetadataResponse(topics=[topic])
        assert decode(MetadataResponse, version, encode(message, version)) == message


def test_many_shapes_of_number_arrays_do_not_pile_up():
    for replicas in range(40):
        for isr in range(20):
            partition = MetadataResponsePartition(replica_nodes=[1] * replicas, isr_nodes=[2] * isr)
            message = MetadataResponse(
                topics=[MetadataResponseTopic(name="", partitions=[partition])]
            )
            assert decode(MetadataResponse, 12, encode(message, 12)) == message


def test_every_message_has_arrays_and_structs_of_its_own():
    first, second = FetchResponse(), FetchResponse()
    first.responses.append(FetchableTopicResponse())
    assert second.responses == []
    one, other = PartitionData(), PartitionData()
    one.current_leader.leader_id = 5
    assert other.current_leader == LeaderIdAndEpoch()
    blank = encode(FetchResponse(responses=[FetchableTopicResponse(partitions=[other, other])]), 12)
    left, right = decode(FetchResponse, 12, blank).responses[0].partitions
    left.current_leader.leader_id = 6
    assert right.current_leader.leader_id == -1


def test_messages_compare_print_copy_and_refuse_unknown_fields():
    topic = FetchTopic(topic="t", partitions=[FetchPartition(fetch_offset=3)])
    assert topic == FetchTopic(topic="t", partitions=[FetchPartition(fetch_offset=3)])
    assert topic != FetchTopic(topic="t")
    assert topic != "t"
    assert repr(topic) == "FetchTopic(topic='t', partitions=[FetchPartition(fetch_offset=3)])"
    assert copy.deepcopy(topic) == topic
    with pytest.raises(TypeError):
        FetchTopic(name="t")
    with pytest.raises(TypeError):
        FetchTopic("t")
    with pytest.raises(AttributeError):
        topic.name = "t"


def test_records_are_passed_on_without_a_copy():
    batches = [bytes(100), memoryview(bytes(200))]
    data = PartitionData(records=batches)
    message = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data, data])])
    parts = encode_parts(message, 11)
    for batch in batches:
        assert sum(part is batch for part in parts) == 2
    assert b"".join(parts) == encode(message, 11)
    joined = encode_parts(
        FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData()])]),
        12,
    )
    assert len(joined) <= 3


def test_decoded_records_are_a_view_on_the_frame():
    data = PartitionProduceData(records=b"batches")
    topic = TopicProduceData(name="t", partition_data=[data])
    frame = encode(ProduceRequest(topic_data=[topic]), 9)
    records = decode(ProduceRequest, 9, memoryview(frame)).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


def test_a_value_that_the_version_lacks_is_refused_unless_ignorable():
    with pytest.raises(UnsupportedFieldError) as refused:
        encode(MetadataRequest(topics=[], allow_auto_topic_creation=False), 3)
    assert refused.value.path == "allow_auto_topic_creation"
    vote = Fill(2).message(VoteRequest)
    with pytest.raises(UnsupportedFieldError, match=r"topics\[0\].partitions\[0\].pre_vote"):
        encode(vote, 1)
    assert encode(FetchRequest(rack_id="r"), 10) == encode(FetchRequest(), 10)


@pytest.mark.parametrize(
    ("message", "version", "path"),
    [
        (FetchRequest(max_wait_ms=2**31), 12, "max_wait_ms"),
        (FetchRequest(max_wait_ms="soon"), 12, "max_wait_ms"),
        (FetchRequest(topics=None), 12, "topics"),
        (FetchRequest(topics=[FetchTopic(topic=None)]), 12, "topics[0].topic"),
        (FetchRequest(topics=[FetchTopic(topic=b"raw")]), 12, "topics[0].topic"),
        (FetchRequest(topics=[FetchTopic(topic="\ud800")]), 12, "topics[0].topic"),
        (FetchRequest(topics=[FetchTopic(topic="x" * 40_000)]), 12, "topics[0].topic"),
        (FetchRequest(topics=[FetchTopic(topic="x" * 40_000)]), 11, "topics[0].topic"),
        (FetchRequest(topics=[FetchTopic(topic_id=b"short")]), 13, "topics[0].topic_id"),
        (FetchRequest(topics=[None]), 12, "topics[0]"),
        (FetchRequest(replica_state=None), 15, "replica_state"),
        (MetadataRequest(topics=None), 0, "topics"),
        (FetchRequest(topics=5), 12, ""),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_an_encode_error_that_names_the_field(message, version, path):
    with pytest.raises(EncodeError) as refused:
        encode(message, version)
    assert refused.value.path == path


def test_an_unknown_version_is_refused():
    with pytest.raises(UnsupportedVersionError):
        encode(FetchRequest(), 3)


def test_uuids_are_read_as_uuids_and_written_from_any_sixteen_bytes():
    topic = FetchTopic(topic_id=bytes(range(16)))
    read = decode(FetchRequest, 13, encode(FetchRequest(topics=[topic]), 13))
    assert type(read.topics[0].topic_id) is Uuid
    assert str(read.topics[0].topic_id) == "AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.parametrize(
    ("text", "range_"), [("4-18", (4, 18)), ("12+", (12, 32767)), ("3", (3, 3))]
)
def test_version_ranges_read_as_in_kafkas_documents(text, range_):
    assert parse_versions(text) == range_


def test_no_version_is_in_none():
    assert 0 not in parse_versions("none")


@pytest.mark.parametrize("version", range(9, 14))
def test_produce_by_hand_reads_and_writes_what_the_compiled_code_does(version):
    """Every request twice: the second time its beginning is remembered."""

    @settings(max_examples=60, deadline=None, database=None)
    @given(st.data())
    def check(data):
        index, size = (
            data.draw(st.integers(0, 2)),
            data.draw(st.sampled_from([0, 5, 126, 127, 200])),
        )
        name, acks = data.draw(st.sampled_from(["t", "é" * 64, ""])), data.draw(st.integers(-1, 1))
        topic_id = Uuid(bytes(15) + bytes([index]))
        batches = data.draw(st.sampled_from([None, bytes(size), bytes(20_000)]))
        one = PartitionProduceData(index=index, records=batches)
        named = {"topic_id": topic_id} if version == 13 else {"name": name}
        topic = TopicProduceData(partition_data=[one] * data.draw(st.integers(0, 2)), **named)
        request = ProduceRequest(
            transactional_id=data.draw(st.sampled_from([None, "x"])),
            acks=acks,
            topic_data=[topic] * data.draw(st.integers(0, 2)),
        )
        frame = encode(request, version)
        compiled = write_decoder(ProduceRequest, version)
        for view in (frame, memoryview(frame), b"before" + frame):
            at = len(view) - len(frame)
            read, after = decode_from(ProduceRequest, version, view, at)
            assert (read, after) == compiled(view, at, len(view), 1_000_000) == (request, len(view))
        for cut in {*range(min(len(frame), 60)), *range(max(0, len(frame) - 5), len(frame))}:
            with pytest.raises(DecodeError):
                decode(ProduceRequest, version, frame[:cut])

    check()


def test_produce_answers_by_hand_are_those_of_the_compiled_code():
    plain = PartitionProduceResponse(index=1, error_code=2, base_offset=3, log_append_time_ms=4)
    error = BatchIndexAndErrorMessage(batch_index=1)
    led = PartitionProduceResponse(current_leader=NewLeader(leader_id=1))
    partitions = [
        plain,
        PartitionProduceResponse(record_errors=[error]),
        PartitionProduceResponse(error_message="no"),
    ]
    for version in range(9, 14):
        compiled = write_encoder(ProduceResponse, version)
        for one in [*partitions, *([led] if version >= 10 else [])]:
            for name in ("", "t", "n" * 126, "n" * 127, "n" * 300):
                named = {"topic_id": Uuid(bytes(range(16)))} if version == 13 else {"name": name}
                topic = TopicProduceResponse(partition_responses=[one], **named)
                for topics in ([topic], [], [topic, topic]):
                    message = ProduceResponse(responses=topics, throttle_time_ms=9)
                    parts = []
                    compiled(message, parts, [])
                    assert encode(message, version) == b"".join(parts)
                    assert decode(ProduceResponse, version, encode(message, version)) == message


def test_a_padded_count_does_not_teach_the_produce_decoder_a_wrong_beginning():
    def frame(name):
        # topics + 1 as 82 00, so that the name's length stands one byte later than usual
        return b"\0\0\1\0\0\0\1\x82\0\4" + name + b"\2\0\0\0\5\3ab\0\0\0"

    for name in (b"aaa", b"aab", b"aaa"):
        topic = decode(ProduceRequest, 9, frame(name)).topic_data[0]
        assert topic.name == name.decode()
        assert topic.partition_data == [PartitionProduceData(index=5, records=b"ab")]
