"""The interface between the workload's clients and their environment, simulated or real.

`nodes.NodesWorld` implements it for simulated clusters. The fault tests of real processes have an
implementation of their own, so both run the same clients with the same checks.
"""

import random
from collections import Counter
from typing import Any, Protocol


class ClientEnv(Protocol):
    """Host names are the names of the nodes, `n1`, `n2` and so on, and those that they advertise.

    Attributes:
        dice: the random generator for pauses and choices.
        counts: the number of events, by name.
        draining: whether clients must start nothing new.
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
        """The replication factor for new topics."""
        ...

    @property
    def has_deaf_leaders(self) -> bool:
        """Whether a leader may stay partitioned for good and never learn of its successor."""
        ...

    def address(self, host: str) -> tuple[str, int]:
        """Return the host and port of the broker's client listener."""
        ...

    def host_of(self, node_id: int, advertised: str | None) -> str:
        """Return the host name for a broker that Metadata names.

        Args:
            node_id: of the broker.
            advertised: its host in the response; None if the response has no such broker.
        """
        ...

    def timestamp_ms(self) -> int:
        """Return the time of a client's wall clock."""
        ...

    def demand(self, holds: object, invariant: str, text: str) -> None:
        """Record a violation unless `holds`; the caller continues."""
        ...

    def on_request(self, request: Any) -> None:
        """Called before a client sends `request`."""
        ...

    def on_response(self, host: str, request: Any, response: Any) -> None:
        """Called when a client has received a response."""
        ...

    def on_producer_id(self, producer_id: int) -> None:
        """Called when a client has been assigned a producer id."""
        ...

    def on_acknowledged(self, topic: str, index: int, end: int) -> None:
        """Called when an acks=all write is acknowledged; `end` is one past its last offset."""
        ...
