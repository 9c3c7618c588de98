"""Quotas of the clients of a node's listeners, which follow the metadata log.

A node has one `ClientQuotas`. If it is broker and controller, a client's requests to both count
together, as in Kafka: its two servers keep their rates under one name in one `Metrics`.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from sparkraft.security.client_quotas import ClientQuotas

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env


class Publisher(Protocol):
    """Publishes images of the cluster."""

    def follow(self, follower: "Callable[[ClusterImage], None]") -> None:
        """Call `follower` with every new image; see `MetadataPublisher.follow`."""


def followed_quotas(
    config: "NodeConfig",
    publisher: Publisher,
    env: "Env",
    spawn: Callable[[Coroutine[Any, Any, Any], str], Any],
) -> ClientQuotas:
    """Return quotas that follow the image from now on.

    Very many are looked through in slices, in a task that `spawn` starts.
    """
    quotas = ClientQuotas(
        samples=config.number("quota.window.num"),
        window_ms=config.number("quota.window.size.seconds") * 1000,
    )

    def update(image: "ClusterImage") -> None:
        steps = quotas.update(image.quotas)
        if steps is not None:
            spawn(env.turn(env.work_max.partitions).carry_out(steps), "quotas of clients")

    publisher.follow(update)
    return quotas
