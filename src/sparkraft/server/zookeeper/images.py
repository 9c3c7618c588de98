"""Publishes the images of a broker in ZooKeeper mode (see `MetadataPublisher` for KRaft's).

Brokers and partitions come from UpdateMetadata, configs from ZooKeeper. The offset of an image is
its number. `metadata.version` in it is the level of inter.broker.protocol.version if it has one
(from 3.3 on); no other feature is finalized, so that coordinators write the records of Kafka 3.9.
The versions of requests between brokers are those of `inter_broker_versions`.
"""

import asyncio
from typing import TYPE_CHECKING

from immutables import Map

from sparkraft.controller.decision_context import DecisionContext
from sparkraft.metadata.features import METADATA_VERSION
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.server.zookeeper_config import HIGHEST_LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import ClusterImage

    Subscriber = Callable[[ClusterImage, ClusterImage, "Iterable[Uuid] | None"], None]


class ZooKeeperImages:
    """Holds the current image.

    Attributes:
        image: the newest.
    """

    def __init__(self, metadata_level: int | None) -> None:
        levels = {} if metadata_level is None else {METADATA_VERSION: metadata_level}
        self.image = EMPTY_IMAGE._replace(features=Map(levels))
        self._subscribers: list[Subscriber] = []
        self._waiters: dict[asyncio.Future[None], Callable[[ClusterImage], bool]] = {}

    def subscribe(self, subscriber: "Subscriber") -> None:
        """Call `subscriber` with every new image, after earlier subscribers.

        Its arguments are the image before, the image, and the ids of topics that may differ; None:
        all may.
        """
        self._subscribers.append(subscriber)

    def follow(self, follower: "Callable[[ClusterImage], None]") -> None:
        """Call `follower` with every new image, after earlier subscribers."""
        self.subscribe(lambda _before, image, _changed: follower(image))

    def publish(self, image: "ClusterImage", changed: "Iterable[Uuid] | None") -> None:
        """Replace the image by one made from it."""
        before = self.image
        self.image = after = image.at(before.offset + 1, before.epoch)
        ids = None if changed is None else sorted(changed)
        for subscriber in self._subscribers:
            subscriber(before, after, ids)
        for waiter, condition in list(self._waiters.items()):
            if not waiter.done() and condition(after):
                waiter.set_result(None)

    async def wait_for(self, condition: "Callable[[ClusterImage], bool]", timeout_ms: int) -> bool:
        """Return true once the image meets `condition`; false after the timeout."""
        if condition(self.image):
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = condition
        try:
            async with asyncio.timeout(max(timeout_ms, 0) / 1000):
                await waiter
        except TimeoutError:
            return False
        finally:
            del self._waiters[waiter]
        return True


def of_newest_version(context: DecisionContext) -> DecisionContext:
    """For decisions that depend on metadata.version in KRaft mode only, such as on credentials."""
    image = context.image._replace(features=Map({METADATA_VERSION: HIGHEST_LEVEL}))
    return DecisionContext(image, context.config, context.entropy, context.sessions, context.tokens)
