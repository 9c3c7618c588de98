"""The follower's end of a fetch session: what each request names, and what an answer may say."""

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.base.placeholder_ids import placeholder_id
from sparkraft.protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from sparkraft.replication.fetch_session import EPOCH_MAX, ClientFetchSession, FetchPosition

A = Uuid(b"a" * 16)
B = Uuid(b"b" * 16)


def at(offset: int) -> FetchPosition:
    return FetchPosition(offset, 0, 3, 2)


def request_of(session: ClientFetchSession) -> FetchRequest:
    request = FetchRequest()
    for _ in session.request(request):
        pass
    return request


def named(request: FetchRequest) -> list[tuple[Uuid, int, int]]:
    return [(t.topic_id, p.partition, p.fetch_offset) for t in request.topics for p in t.partitions]


def forgotten(request: FetchRequest) -> list[tuple[Uuid, list[int]]]:
    return [(t.topic_id, list(t.partitions)) for t in request.forgotten_topics_data]


def answer(*keys: tuple[Uuid, int], session_id: int = 7, error: int = 0) -> FetchResponse:
    return FetchResponse(
        session_id=session_id,
        error_code=error,
        responses=[
            FetchableTopicResponse(
                topic_id=topic_id,
                partitions=[PartitionData(partition_index=index, high_watermark=0, records=b"")],
            )
            for topic_id, index in keys
        ],
    )


def opened(*keys: tuple[Uuid, int]) -> ClientFetchSession:
    """A session with `keys`, whose first answer came."""
    session = ClientFetchSession(1 << 20)
    for key in keys:
        session.add(key, at(0))
    request_of(session)
    assert session.accept(answer(*keys))
    return session


def test_the_first_request_names_everything_and_its_answer_opens_the_session():
    session = ClientFetchSession(1 << 20)
    session.add((A, 0), at(5))
    session.add((A, 1), at(6))
    request = request_of(session)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == [(A, 0, 5), (A, 1, 6)]
    partition = request.topics[0].partitions[0]
    assert partition.partition_max_bytes == 1 << 20
    assert (partition.current_leader_epoch, partition.last_fetched_epoch) == (3, 2)
    assert session.accept(answer((A, 0), (A, 1)))
    assert (session.id, session.epoch) == (7, 1)


def test_later_requests_name_only_what_changed():
    session = opened((A, 0), (A, 1), (B, 0))
    session.add((A, 1), at(9))
    session.add((B, 0), at(0))
    request = request_of(session)
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert named(request) == [(A, 1, 9)]
    assert session.accept(answer())
    assert session.epoch == 2
    assert named(request_of(session)) == []


def test_a_partition_that_left_is_forgotten_once():
    session = opened((A, 0), (A, 1))
    session.forget((A, 0))
    session.forget((B, 5))
    assert forgotten(request_of(session)) == [(A, [0])]
    assert session.accept(answer())
    assert forgotten(request_of(session)) == []


def test_a_partition_that_comes_back_before_the_next_request_is_not_forgotten():
    session = opened((A, 0), (A, 1))
    session.forget((A, 0))
    session.add((A, 0), at(0))
    request = request_of(session)
    assert forgotten(request) == []
    assert named(request) == [(A, 0, 0)]


def test_the_last_partition_is_forgotten_by_a_request_of_its_own():
    session = opened((A, 0))
    session.forget((A, 0))
    assert session.has_request()
    assert forgotten(request_of(session)) == [(A, [0])]
    assert session.accept(answer(session_id=0))
    assert not session.has_request()


def test_without_a_session_nothing_needs_to_be_forgotten():
    session = ClientFetchSession(1)
    session.add((A, 0), at(0))
    session.forget((A, 0))
    assert not session.has_request()


def test_a_partition_asked_anew_stands_last():
    session = opened((A, 0), (A, 1), (A, 2))
    session.add((A, 0), at(4))
    assert list(session.partitions) == [(A, 1), (A, 2), (A, 0)]
    session.lost()
    assert [index for _, index, _ in named(request_of(session))] == [1, 2, 0]


def test_a_leader_without_room_for_sessions_gets_full_requests():
    session = ClientFetchSession(1)
    session.add((A, 0), at(0))
    request_of(session)
    assert session.accept(answer((A, 0), session_id=0))
    request = request_of(session)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == [(A, 0, 0)]


def test_a_lost_session_begins_anew_and_a_refused_epoch_closes_it():
    session = opened((A, 0))
    request_of(session)
    assert not session.accept(answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    assert (session.id, session.epoch) == (0, 0)
    assert session.trouble == "FETCH_SESSION_ID_NOT_FOUND"
    session = opened((A, 0))
    request_of(session)
    assert not session.accept(answer(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH))
    assert (session.id, session.epoch) == (7, 0)
    assert named(request_of(session)) == [(A, 0, 0)]


def test_a_full_answer_that_leaves_a_partition_out_is_of_no_use():
    session = ClientFetchSession(1)
    session.add((A, 0), at(0))
    session.add((A, 1), at(0))
    request_of(session)
    assert not session.accept(answer((A, 0)))
    assert (session.id, session.epoch) == (0, 0)


def test_an_answer_with_partitions_that_were_not_asked_is_of_no_use():
    session = opened((A, 0))
    request_of(session)
    assert not session.accept(answer((B, 0)))
    assert (session.id, session.epoch) == (7, 0)
    assert session.trouble == "the response has 1 partitions that were not requested"


def test_a_failed_request_is_told_again_in_full():
    session = opened((A, 0), (A, 1))
    session.add((A, 0), at(5))
    session.forget((A, 1))
    request_of(session)
    session.lost()
    request = request_of(session)
    assert (request.session_id, request.session_epoch) == (7, 0)
    assert named(request) == [(A, 0, 5)]
    assert forgotten(request) == []


def test_the_epoch_wraps_to_one():
    session = opened((A, 0))
    session.epoch = EPOCH_MAX
    assert session.accept(answer())
    assert session.epoch == 1


# ---- topics without an id: inter.broker.protocol.version below 2.8

NAMELESS = placeholder_id("old")
"""Stands for topic `old`."""


def named_at(topic: str, offset: int) -> FetchPosition:
    return FetchPosition(offset, 0, 3, -1, topic)


def answer_by_name(*topics: str, session_id: int = 7) -> FetchResponse:
    response = answer(*((Uuid.ZERO, 0) for _ in topics), session_id=session_id)
    for topic, name in zip(response.responses, topics, strict=True):
        topic.topic = name
    return response


def test_topics_are_named_and_a_response_by_name_gets_their_ids():
    session = ClientFetchSession(1)
    session.add((NAMELESS, 0), named_at("old", 0))
    session.add((A, 0), named_at("new", 0))
    assert not session.has_ids
    request = request_of(session)
    assert [topic.topic for topic in request.topics] == ["old", "new"]
    response = answer_by_name("old", "new")
    assert session.accept(response)
    assert [topic.topic_id for topic in response.responses] == [NAMELESS, A]
    session.forget((A, 0))
    (left,) = request_of(session).forgotten_topics_data
    assert (left.topic, left.topic_id) == ("new", A)
    assert not session.accept(answer_by_name("new")), "its partition was forgotten"


def test_a_topic_that_gets_its_id_opens_a_new_session():
    """FetchSessionHandler: a session names topics by id or by name, not by both (KIP-516)."""
    session = ClientFetchSession(1)
    session.add((NAMELESS, 0), named_at("old", 0))
    request_of(session)
    assert session.accept(answer_by_name("old"))
    session.forget((NAMELESS, 0))
    session.add((A, 0), named_at("old", 5))
    assert session.has_ids
    request = request_of(session)
    assert (request.session_id, request.session_epoch) == (7, 0), "closes the session"
    assert named(request) == [(A, 0, 5)]
    assert not request.forgotten_topics_data
    assert session.accept(answer((A, 0), session_id=8))
    assert (session.id, session.epoch) == (8, 1)


def test_a_response_by_name_is_about_the_newest_id_of_a_topic():
    session = ClientFetchSession(1)
    session.add((NAMELESS, 0), named_at("t", 0))
    session.add((NAMELESS, 1), named_at("t", 0))
    session.add((A, 0), named_at("t", 0))
    session.forget((NAMELESS, 0))
    session.forget((NAMELESS, 1))
    session.add((B, 0), named_at("other", 0))
    request_of(session)
    response = answer_by_name("t", "other")
    assert session.accept(response)
    assert [topic.topic_id for topic in response.responses] == [A, B]
