"""What clients see while nodes die: a producer and a consumer of librdkafka with their defaults."""

import threading
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from confluent_kafka import Consumer, Message, Producer

from tests.support.ports import wait_until
from tests.support.record_clients import close

FLUSH_SECONDS = 60
END_SECONDS = 180
"""Also for a consumer that must be left behind."""

JOIN_SECONDS_MAX = 90
GROUP = "meanwhile"
QUIET = {"log_level": 0}
"""Every connection that ends would be a line."""


@dataclass
class Clients:
    """What they came to."""

    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    errors: int = 0
    """That the consumer was handed in the place of records; what it got over by itself is none."""

    @property
    def given_up(self) -> int:
        """Records that the producer reported as failed, or never reported."""
        return self.sent - self.acknowledged


class Background:
    """Writes to a topic and reads it, as a group of one, as long as its block lasts.

    Records count for what was being done when they were sent, reads and errors for what was being
    done when they came.
    """

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        """Start with the `with` block; `rate` is in records a second."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._rate = rate
        self._counts = Clients()
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._produce, self._consume)
        ]

    def count_for(self, counts: Clients) -> None:
        """From now on, count here."""
        self._counts = counts

    def __enter__(self) -> Self:
        """Start both, and return when the consumer has joined and reads."""
        for thread in self._threads:
            thread.start()
        wait_until(lambda: self._counts.read, "the consumer reads", JOIN_SECONDS_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop both, and wait for what is in flight."""
        self._end.set()
        for thread in self._threads:
            thread.join(END_SECONDS)
            assert not thread.is_alive()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, **QUIET})
        while not self._end.wait(1 / self._rate):
            counts = self._counts
            counts.sent += 1
            producer.produce(self._topic, bytes(100), on_delivery=partial(_delivered, counts))
            producer.poll(0)
        producer.flush(FLUSH_SECONDS)

    def _consume(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": GROUP, **QUIET})
        consumer.subscribe([self._topic])
        while not self._end.is_set():
            message = consumer.poll(0.1)
            if message is not None:
                counts = self._counts
                counts.read += message.error() is None
                counts.errors += message.error() is not None
        close(consumer, GROUP)


def _delivered(counts: Clients, error: Any, _: Message) -> None:
    counts.acknowledged += error is None
