"""Calls of librdkafka that a coordinator or a leader answers, gone on with as an application would.

One that has just been made, moved or restarted refuses for a while. librdkafka asks again a few
times and then hands the refusal to the application, whose own turn it is to ask again.
"""

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.ports import wait_until

T = TypeVar("T")

ATTEMPT_SECONDS_MAX = 30.0
TAKEN_SECONDS_MAX = 120.0
"""Longer than a coordinator takes to load, or a leader to lead, on a machine with other work."""

REFUSED_FOR_NOW = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
}
"""librdkafka marks only errors of transactions as retriable; these are so as well."""


def is_refused_for_now(error: KafkaError) -> bool:
    """Whether the same call may work in a moment."""
    return error.retriable() or error.code() in REFUSED_FOR_NOW


def until_taken(call: Callable[[], T], what: str) -> T:
    """What `call` gives once it is not refused for now.

    Raises:
        KafkaException: it is refused for good.
    """
    taken: list[T] = []

    def is_taken() -> bool:
        try:
            taken.append(call())
        except KafkaException as error:
            if not is_refused_for_now(error.args[0]):
                raise
        return bool(taken)

    wait_until(is_taken, what, TAKEN_SECONDS_MAX)
    return taken[0]


def commit(consumer: Consumer, offsets: list[TopicPartition] | None = None) -> None:
    """Commit these offsets, or what was read, and return once the coordinator has them."""

    def attempt() -> None:
        told = (
            consumer.commit(asynchronous=False)
            if offsets is None
            else consumer.commit(offsets=offsets, asynchronous=False)
        )
        _check(told or [])

    until_taken(attempt, "the offsets are committed")


def committed(consumer: Consumer, places: list[TopicPartition]) -> dict[int, int]:
    """Partition → the committed offset, below 0 where there is none; `places` are of one topic."""

    def attempt() -> dict[int, int]:
        told = consumer.committed(places, timeout=ATTEMPT_SECONDS_MAX)
        _check(told)
        return {place.partition: place.offset for place in told}

    return until_taken(attempt, "the committed offsets are told")


def init_transactions(producer: Producer) -> None:
    """Have the coordinator know the producer."""
    until_taken(lambda: producer.init_transactions(ATTEMPT_SECONDS_MAX), "the producer may begin")


def end_of(consumer: Consumer, place: TopicPartition) -> int:
    """The partition's high watermark."""

    def attempt() -> int:
        _, end = consumer.get_watermark_offsets(place, timeout=ATTEMPT_SECONDS_MAX)
        return end

    return until_taken(attempt, f"the end of {place.topic}-{place.partition} is told")


def until_served(bootstrap: str) -> None:
    """Return once a broker is there and every partition is led.

    Apache Kafka's brokers listen before they are unfenced: nobody leads then, and topics can't be
    made.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def attempt() -> bool:
        told = admin.list_topics(timeout=ATTEMPT_SECONDS_MAX)
        partitions = [p for topic in told.topics.values() for p in topic.partitions.values()]
        return bool(told.brokers) and all(p.leader >= 0 for p in partitions)

    wait_until(
        lambda: until_taken(attempt, "the brokers tell of themselves"),
        f"the brokers at {bootstrap} serve",
        TAKEN_SECONDS_MAX,
    )


def _check(places: list[TopicPartition]) -> None:
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)
