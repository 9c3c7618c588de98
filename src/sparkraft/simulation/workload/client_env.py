"""What the clients of a workload need of the world that they live in, be it simulated or real.

`nodes.NodesWorld` is one such world; the tests of real processes under faults have another, so that
the same clients write, read and judge there (`workload`).
"""

import random
from collections import Counter
from typing import Any, Protocol


class ClientEnv(Protocol):
    """See the module docstring; hosts go by the names that nodes have: `n1`, `n2` and so on.

    Attributes:
        dice: for pauses and choices.
        counts: what happened, by name.
        draining: clients begin nothing new.
    """

    dice: random.Random
    counts: Counter[str]
    draining: bool

    @property
    def hosts(self) -> list[str]:
        """Brokers that are not broken for good."""
        ...

    @property
    def replicas(self) -> int:
        """How many replicas a partition is to have."""
        ...

    @property
    def has_deaf_leaders(self) -> bool:
        """Whether a leader may be cut off for good, and never hear that it is one no more."""
        ...

    def address(self, host: str) -> tuple[str, int]:
        """Where the broker listens for clients."""
        ...

    def timestamp_ms(self) -> int:
        """A client's wall clock."""
        ...

    def demand(self, holds: object, invariant: str, text: str) -> None:
        """A violation where it does not hold; the caller goes on."""
        ...

    def on_request(self, request: Any) -> None:
        """A client is about to send it."""
        ...

    def on_answer(self, host: str, request: Any, answer: Any) -> None:
        """A client has got it."""
        ...

    def on_producer_id(self, producer_id: int) -> None:
        """A client was given it."""
        ...

    def on_acknowledged(self, topic: str, index: int, end: int) -> None:
        """A producer that asked for acks=all was told that everything below `end` is written."""
        ...
