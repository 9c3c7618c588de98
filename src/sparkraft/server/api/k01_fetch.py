"""Fetch: v4-18. Read record batches from partitions. (KIP-74, KIP-227, KIP-320, KIP-516, KIP-951)

Behaviour:
    * Waits up to `max_wait_ms` for `min_bytes`; responds at once to an error or a diverging epoch.
    * The first partition with data returns at least one whole batch, however large; the rest obey
      `partition_max_bytes` and `max_bytes` (at most `fetch.max.bytes`).
    * Consumers see up to the high watermark (isolation 0) or the last stable offset (1); the latter
      also get the aborted transactions in the returned range (KIP-98).
    * Incremental sessions: a response has only the partitions that changed.
    * From v11 a consumer may read from a follower, up to its high watermark; a leader refers a
      consumer with a rack id to a follower there, if replica.selector.class is set so (KIP-392).
    * A replica reads to the log's end, and its fetch offset moves ISR and high watermark. It must
      be assigned (else UNKNOWN_LEADER_EPOCH, or NOT_LEADER_OR_FOLLOWER if it names no epoch) and of
      its broker's current epoch (KIP-903, else NOT_LEADER_OR_FOLLOWER). A waiting replica gets a
      moved high watermark within `HIGH_WATERMARK_LINGER_MS` (KIP-1166).
    * A throttled replica that is not in sync gets nothing while the leader's rate is exceeded
      (KIP-73).
    * A partition of a follower's session without changes costs one comparison; in a consumer's
      session it costs nothing (`fetch_sessions`). Its topic's rights are checked at each fetch.
    * Records that are not in the page cache are read in a thread (`cold_reads`). If there are
      others, or an error, the response leaves without them; else it waits, and everything is
      checked again.
    * While the event loop is busy, fetches of consumers that keep up wait a few milliseconds and
      are then answered together (`network.gathering`).
    * `last_fetched_epoch` not in the leader's log: `diverging_epoch` instead of records.
Versions: v5 log start; v7 sessions; v9 leader epochs; v11 rack; v12 flexible; v13 topic ids; v15
    replica state; v16 leader hints; v17 directory id; v18 the follower's high watermark.
Not done: -
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.security.quotas import CONSUMER_BYTE_RATE
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.fetch_reading import Found
from sparkraft.server.api.fetch_work import HIGH_WATERMARK_LINGER_MS, FetchWork
from sparkraft.server.api.registry import Api, RequestContext, Steps, result_of
from sparkraft.server.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from sparkraft.server.broker.purgatory import FetchWaiter

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse] | Steps:
    """Read now; respond now or once there is enough."""
    throttle_ms = 0
    if broker.client_quotas.is_active:
        throttle_ms = _limit_by_quota(broker, context, request)
    fetch = FetchWork(broker, context, request)
    if throttle_ms and not fetch.replica:
        context.throttle_by(max(throttle_ms, context.throttle_ms))
        context.connection.mute(throttle_ms)
        return _answer_without_records(fetch)
    if fetch.is_large:
        return _handle_large(fetch)
    if fetch.may_wait and context.connection.gathering.is_on:
        held: Awaitable[FetchResponse] = context.connection.gathering.hold(
            lambda: _handle_now(fetch)
        )
        return held
    return _handle_now(fetch)


def _handle_now(fetch: FetchWork) -> FetchResponse | Awaitable[FetchResponse]:
    try:
        incremental = result_of(fetch.open_session())
    except KafkaError as error:
        return FetchResponse(error_code=int(error.code))
    found, total, urgent = fetch.read()
    if fetch.must_warm(total, urgent=urgent):
        return _answer_when_warm(fetch, incremental=incremental)
    return _answer(fetch, found, total, urgent=urgent, incremental=incremental)


async def _answer_when_warm(fetch: FetchWork, *, incremental: bool) -> FetchResponse:
    """Read again, with every check, once the page cache has what was missing."""
    found: Found = []
    total, urgent = 0, False
    while fetch.must_warm(total, urgent=urgent):
        await fetch.warm()
        found, total, urgent = fetch.read(parked=True)
    answer = _answer(fetch, found, total, urgent=urgent, incremental=incremental)
    return answer if isinstance(answer, FetchResponse) else await answer


def _answer(
    fetch: FetchWork, found: Found, total: int, *, urgent: bool, incremental: bool
) -> FetchResponse | Awaitable[FetchResponse]:
    """Respond to what was read, or wait for more."""
    request = fetch.request
    min_bytes = min(request.min_bytes, fetch.max_bytes)
    if urgent or not fetch.asked or total >= min_bytes or request.max_wait_ms <= 0:
        return fetch.answer(found, incremental=incremental)

    def answer_now() -> FetchResponse:
        return fetch.answer(fetch.read(parked=True)[0], incremental=incremental)

    wait_ms = request.max_wait_ms
    if fetch.lacks_high_watermark(found):
        wait_ms = min(wait_ms, HIGH_WATERMARK_LINGER_MS)
    for asked, data in found:
        fetch.note_read(asked, data)
    waiter = FetchWaiter(
        fetch.broker.replica_manager.wheel,
        fetch.queues(),
        missing_bytes=min_bytes - total,
        wait_ms=wait_ms,
        linger_ms=HIGH_WATERMARK_LINGER_MS if fetch.replica else None,
        answer=answer_now,
    )
    return waiter.future


def _limit_by_quota(
    broker: "BrokerServices", context: RequestContext, request: FetchRequest
) -> int:
    """Read no more than the quota allows an idle consumer at once, as in Kafka.

    Returns how long the client must still wait for what it got on other connections, in ms.
    """
    quotas, user, client_id = broker.client_quotas, context.principal.name, context.client_id
    most = quotas.burst_max(CONSUMER_BYTE_RATE, user, client_id)
    if most is None or request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        return 0
    request.max_bytes = min(request.max_bytes, most)
    return quotas.throttle_left(CONSUMER_BYTE_RATE, user, client_id, context.received_ms)


def _answer_without_records(fetch: FetchWork) -> Steps:
    """Respond to a client that must wait: the session continues, and nothing is read.

    As Kafka's `getThrottledResponse`: clients repeat a full fetch, and keep their session.
    """
    request = fetch.request
    if request.session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
        if request.session_id:
            fetch.broker.fetch_sessions.end(request.session_id)
        return FetchResponse()
    try:
        yield from fetch.open_session()
    except KafkaError as error:
        return FetchResponse(error_code=int(error.code))
    return FetchResponse(session_id=0 if fetch.session is None else fetch.session.id)


def _handle_large(fetch: FetchWork) -> Steps:
    """The same in slices, with the encoded response."""
    request = fetch.request
    try:
        incremental = yield from fetch.open_session()
    except KafkaError as error:
        return FetchResponse(error_code=int(error.code))
    found, total, urgent = yield from fetch.read_in_slices()
    while fetch.must_warm(total, urgent=urgent):
        yield fetch.warm()
        found, total, urgent = yield from fetch.read_in_slices(parked=True)
    min_bytes = min(request.min_bytes, fetch.max_bytes)
    if fetch.asked and not urgent and total < min_bytes and request.max_wait_ms > 0:
        waiter = FetchWaiter(
            fetch.broker.replica_manager.wheel,
            (),
            missing_bytes=min_bytes - total,
            wait_ms=request.max_wait_ms,
            linger_ms=HIGH_WATERMARK_LINGER_MS if fetch.replica else None,
            answer=lambda: None,
        )
        yield from fetch.wait_everywhere(waiter)
        yield waiter.future
        found, _, _ = yield from fetch.read_in_slices(parked=True)
    return (yield from fetch.answer_in_slices(found, incremental=incremental))


def refuse(_: type, request: Any, version: int, error: KafkaError) -> Steps:
    """The whole request with one error, at the top from v7 on."""
    response = FetchResponse(error_code=int(error.code))
    if version >= 7:  # noqa: PLR2004 (no top-level error before)
        return response
    code = int(error.code)
    for topic in request.topics:
        parts = (
            PartitionData(
                partition_index=part.partition, error_code=code, high_watermark=-1, records=b""
            )
            for part in topic.partitions
        )
        found = yield from encoded_in_pieces(FetchResponse, version, parts)
        response.responses.append(FetchableTopicResponse(topic=topic.topic, partitions=found))
        yield 1
    topics = yield from encoded_in_pieces(FetchResponse, version, response.responses)
    response.responses = topics
    return response


API = Api(
    key=ApiKey.FETCH,
    handle=handle,
    authorize=(
        on_each(AclOperation.READ, AclResourceType.TOPIC, when="a consumer fetches"),
        on_each(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, when="a replica fetches"),
    ),
    dies_with_connection=True,
    refuse=refuse,
)
