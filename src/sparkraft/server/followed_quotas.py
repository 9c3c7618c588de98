"""Quotas of the clients of a node's listeners, which follow the metadata log."""

from typing import TYPE_CHECKING, Protocol

from sparkraft.security.client_quotas import ClientQuotas

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.config import NodeConfig


class Publisher(Protocol):
    """Publishes images of the cluster."""

    def follow(self, follower: "Callable[[ClusterImage], None]") -> None:
        """Call `follower` with every new image; see `MetadataPublisher.follow`."""


def followed_quotas(config: "NodeConfig", publisher: Publisher) -> ClientQuotas:
    """Return quotas that follow the image from now on.

    Broker listeners and controller listeners have their own, as the two servers of a node of Kafka:
    requests to one do not count for the other.
    """
    quotas = ClientQuotas(
        samples=config.number("quota.window.num"),
        window_ms=config.number("quota.window.size.seconds") * 1000,
    )
    publisher.follow(lambda image: quotas.update(image.quotas))
    return quotas
