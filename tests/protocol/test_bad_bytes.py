"""Whatever the bytes are: a message or a DecodeError, and never more elements than the budget."""

import random
import secrets

import pytest

from sparkraft.base.errors import DecodeError
from sparkraft.protocol.codec import decode, decode_from, encode
from sparkraft.protocol.headers import HEADER_TAGS_MAX
from sparkraft.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from sparkraft.protocol.messages.group_records import GROUP_RECORDS
from sparkraft.protocol.messages.headers import RequestHeader, ResponseHeader
from sparkraft.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from sparkraft.protocol.messages.k11_join_group import JoinGroupRequest
from sparkraft.protocol.messages.metadata_records import METADATA_RECORDS
from sparkraft.protocol.messages.misc import DefaultPrincipalData
from sparkraft.protocol.messages.raft_records import (
    ControlRecordTypeSchema,
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    QuorumStateData,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from sparkraft.protocol.messages.share_records import SHARE_RECORDS
from sparkraft.protocol.messages.transaction_records import TRANSACTION_RECORDS
from sparkraft.protocol.reference_codec import Reader
from tests.protocol.strategies import Fill, message_classes, versions_of

MUTATED_FRAMES = 10_000
SMALL_BUDGET = 40

RECORD_TYPES = [GROUP_RECORDS, SHARE_RECORDS, TRANSACTION_RECORDS]
MESSAGES = [
    *message_classes(),
    *METADATA_RECORDS.values(),
    *(cls for types in RECORD_TYPES for key_and_value in types.values() for cls in key_and_value),
    *(LeaderChangeMessage, SnapshotHeaderRecord, SnapshotFooterRecord),
    *(KRaftVersionRecord, VotersRecord, ControlRecordTypeSchema, EndTxnMarker, QuorumStateData),
    *(ConsumerProtocolAssignment, ConsumerProtocolSubscription, DefaultPrincipalData),
    *(RequestHeader, ResponseHeader),
]
EVERY = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for cls in MESSAGES
    for version in versions_of(cls)
]


def elements(value):
    """Array elements in a message, as the budget counts them."""
    if isinstance(value, list):
        return len(value) + sum(elements(each) for each in value)
    if hasattr(value, "SCHEMA"):
        return sum(elements(getattr(value, name)) for name in value.SCHEMA.names)
    return 0


def carefully(cls, version, data, budget):
    """What the slow decoder makes of it: a message or None."""
    flexible = version in cls.SCHEMA.flexible
    reader = Reader(data, 0, version=version, flexible=flexible, budget=budget)
    try:
        made = reader.message(cls)
    except DecodeError:
        return None
    return made if reader.at == len(data) else None


@pytest.mark.parametrize(("cls", "version"), EVERY)
def test_every_cut_off_prefix_is_refused(cls, version):
    whole = encode(Fill(version).message(cls), version)
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            decode(cls, version, whole[:size])


@pytest.mark.parametrize(("cls", "version"), EVERY)
def test_bytes_after_the_message_are_refused_and_their_place_named(cls, version):
    whole = encode(Fill(version).message(cls), version)
    with pytest.raises(DecodeError) as refused:
        decode(cls, version, whole + b"\0")
    assert refused.value.at == len(whole)


def mutate(dice, data):
    """`data` with one to four things wrong."""
    out = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(out) + 1)
        match dice.randrange(6):
            case 0 if out:
                out[at % len(out)] ^= 1 << dice.randrange(8)
            case 1 if out:
                out[at % len(out)] = dice.choice([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF])
            case 2:
                out[at:at] = dice.randbytes(dice.randint(1, 5))
            case 3:
                del out[at : at + dice.randint(1, 5)]
            case 4:
                out[at:at] = b"\xff\xff\xff\xff\x0f"
            case _:
                out[at : at + 4] = dice.choice([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
    return bytes(out)


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_frames_give_a_message_within_budget_or_a_decode_error(seed):
    decoded_or_refused(seed)


@pytest.mark.long
def test_frames_mutated_by_new_seeds_give_a_message_within_budget_or_a_decode_error():
    for _ in range(50):
        decoded_or_refused(secrets.randbits(64))


def decoded_or_refused(seed):
    """Each of the frames that `seed` mutates is, and fast and careful decoders agree."""
    dice = random.Random(seed)
    originals = [
        (cls, version, encode(Fill(version, nulls=nulls).message(cls), version))
        for cls in MESSAGES
        for version in versions_of(cls)
        for nulls in (False, True)
    ]
    accepted = 0
    for number in range(MUTATED_FRAMES):
        cls, version, data = dice.choice(originals)
        mutated = mutate(dice, data)
        budget = dice.choice([SMALL_BUDGET, 1_000_000])
        where = f"seed {seed}, frame {number}: {cls.__name__} v{version} {mutated.hex()}"
        try:
            message = decode(cls, version, mutated, budget)
        except DecodeError:
            assert carefully(cls, version, mutated, budget) is None, where
            continue
        except Exception as error:
            raise AssertionError(where) from error
        accepted += 1
        assert elements(message) <= budget, where
        slow = carefully(cls, version, mutated, budget)
        assert slow is not None, where
        assert encode(slow, version) == encode(message, version), where
    assert accepted > MUTATED_FRAMES / 20, "most mutations should not be caught that early"


def test_refusals_name_field_and_place():
    topics = [FetchTopic(topic="one", partitions=[FetchPartition()]), FetchTopic(topic="two")]
    good = encode(FetchRequest(topics=topics), 11)
    at = good.index(b"two")
    with pytest.raises(DecodeError) as refused:
        decode(FetchRequest, 11, good.replace(b"two", b"tw\xff"))
    assert refused.value.path == "topics[1].topic"
    assert refused.value.at == at + 2


def test_text_that_is_not_utf8_is_refused_where_it_goes_wrong():
    good = encode(JoinGroupRequest(group_id="group"), 5)
    bad = good.replace(b"group", b"gr\xffup")
    with pytest.raises(DecodeError) as refused:
        decode(JoinGroupRequest, 5, bad)
    assert (refused.value.path, refused.value.at) == ("group_id", 4)


@pytest.mark.parametrize("size", [b"\xff\xff", b"\x80\x00"])
def test_null_and_negative_lengths_are_refused_where_null_is_not_allowed(size):
    good = encode(JoinGroupRequest(group_id=""), 5)
    with pytest.raises(DecodeError):
        decode(JoinGroupRequest, 5, size + good[2:])


def test_a_length_below_minus_one_is_refused_even_where_null_is_allowed():
    good = encode(RequestHeader(client_id=None), 1)
    assert decode(RequestHeader, 1, good).client_id is None
    with pytest.raises(DecodeError):
        decode(RequestHeader, 1, good[:-2] + b"\xff\xfe")


@pytest.mark.parametrize("count", [b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x7f"])
def test_overlong_varints_are_refused(count):
    with pytest.raises(DecodeError):
        decode(MetadataRequest, 12, count + bytes(20))


def test_a_varint_may_be_padded_within_its_five_bytes():
    assert decode(MetadataRequest, 12, b"\x80\x00\x01\x00\x00") == MetadataRequest(topics=None)


def test_a_count_is_not_believed_beyond_the_bytes_left():
    with pytest.raises(DecodeError, match="elements are announced"):
        decode(MetadataRequest, 1, b"\x00\x0f\x00\x00" + bytes(100))


def test_one_byte_elements_cannot_exceed_the_budget():
    count = 200_000
    frame = (count).to_bytes(4, "big") + bytes(2 * count)
    assert len(decode(MetadataRequest, 1, frame).topics) == count
    with pytest.raises(DecodeError, match="more elements"):
        decode(MetadataRequest, 1, frame, 100_000)


def test_the_budget_counts_nested_arrays_together():
    topic = FetchTopic(topic="t", partitions=[FetchPartition() for _ in range(10)])
    frame = encode(FetchRequest(topics=[topic] * 10), 12)
    assert decode(FetchRequest, 12, frame, 110).topics[9].partitions[9] == FetchPartition()
    with pytest.raises(DecodeError, match="more elements"):
        decode(FetchRequest, 12, frame, 109)


def tagged(*fields):
    """A tagged-field section."""
    return bytes([len(fields)]) + b"".join(
        bytes([tag, len(value)]) + value for tag, value in fields
    )


HEADER = encode(RequestHeader(request_api_key=3, client_id="c"), 2)[:-1]


def test_unknown_tagged_fields_are_skipped():
    frame = HEADER + tagged((0, b"one"), (7, b""), (100, b"three"))
    assert decode(RequestHeader, 2, frame).request_api_key == 3


@pytest.mark.parametrize("tags", [(1, 1), (2, 1), (0, 0)])
def test_repeated_and_unordered_tags_are_refused(tags):
    frame = HEADER + tagged(*((tag, b"x") for tag in tags))
    with pytest.raises(DecodeError, match="after tag"):
        decode(RequestHeader, 2, frame)


def test_known_tags_are_read_once_in_order_and_exactly():
    good = encode(FetchRequest(cluster_id="abc"), 12)
    assert good.endswith(b"\x01\x00\x04\x04abc")
    for bad in (b"\x01\x00\x05\x04abcX", b"\x01\x00\x03\x04abc", b"\x02\x00\x01\x00\x00\x01\x00"):
        with pytest.raises(DecodeError):
            decode(FetchRequest, 12, good.removesuffix(b"\x01\x00\x04\x04abc") + bad)


def test_a_header_has_at_most_sixteen_tagged_fields():
    at_most = HEADER + tagged(*((tag, b"") for tag in range(HEADER_TAGS_MAX)))
    message, at = decode_from(RequestHeader, 2, at_most, 0, HEADER_TAGS_MAX)
    assert (message.client_id, at) == ("c", len(at_most))
    too_many = HEADER + tagged(*((tag, b"") for tag in range(HEADER_TAGS_MAX + 1)))
    with pytest.raises(DecodeError):
        decode_from(RequestHeader, 2, too_many, 0, HEADER_TAGS_MAX)


def test_millions_of_announced_tags_cost_nothing():
    with pytest.raises(DecodeError):
        decode(RequestHeader, 2, HEADER + b"\xff\xff\xff\x7f" + bytes(1000))


def test_an_unknown_version_is_a_decode_error():
    with pytest.raises(DecodeError, match="no version 99"):
        decode(MetadataResponse, 99, b"")
