"""Publishes the committed records of the metadata log to the broker as a series of images.

    raft commits a batch → `Replay` → new stable image? → subscribers → `catch_up` returns

If a controller is in the same process its image is used: replaying twice would double the time and
memory, and clusters may have very many partitions.

A starting node replays history: deleted topics, former leaders. So subscribers get nothing before
`catch_up`, which waits until the image has this broker's own registration. Followers get images
from when the records that are known to be committed are replayed, also on a node without a broker.

Each new image comes with the ids of topics it may have changed, so that subscribers do work for the
changes only. Records of a metadata transaction are published when it ends (KIP-868).
"""

import asyncio
from typing import TYPE_CHECKING, Any

from sparkraft.base.ids import Uuid
from sparkraft.metadata.image import EMPTY_IMAGE, ResourceType
from sparkraft.metadata.replay import Replay
from sparkraft.protocol.messages.metadata_records import ConfigRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkraft.base.ids import BrokerId, LeaderEpoch
    from sparkraft.controller.controller import Controller
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.raft.metadata_log_listener import CommittedBatch


class MetadataPublisher:
    """A listener of the metadata log.

    Subscribers are called with (image before, image, ids of changed topics; None: all may have).
    """

    def __init__(self, controller: "Controller | None" = None) -> None:
        """Start with an empty image.

        Args:
            controller: of this process. Its driver must be registered with raft before this, so
                that it has replayed each batch already.
        """
        self._own: Replay | None = None
        self._replayed: Controller | Replay
        if controller is None:
            self._replayed = self._own = Replay()
        else:
            self._replayed = controller
        self._image = EMPTY_IMAGE
        self._subscribers: list[Any] = []
        self._followers: list[Callable[[ClusterImage], None]] = []
        self._leader_listeners: list[Callable[[BrokerId | None], None]] = []
        self._changed: set[Uuid] = set()
        self._all_changed = False
        self._seen = -1
        self._is_loaded = False
        self._caught_up = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._awaited_levels: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def image(self) -> "ClusterImage":
        """The newest stable image."""
        return self._image

    @property
    def offset(self) -> int:
        """Offset of the last committed record; reported in heartbeats."""
        return self._seen

    @property
    def is_loaded(self) -> bool:
        """Whether the records that were known to be committed at the start are replayed."""
        return self._is_loaded

    def subscribe(self, subscriber: Any) -> None:
        """Call `subscriber` with every new image after `catch_up`, after earlier subscribers."""
        self._subscribers.append(subscriber)

    def follow(self, follower: "Callable[[ClusterImage], None]") -> None:
        """Call `follower` with each image once the committed records are replayed."""
        self._followers.append(follower)
        if self._is_loaded:
            follower(self._image)

    def add_leader_listener(self, listener: "Callable[[BrokerId | None], None]") -> None:
        """Call `listener` with each new active controller's id; None: there is none."""
        self._leader_listeners.append(listener)

    async def catch_up(self, offset: int) -> None:
        """Return once the image has the record at `offset`; publish images from then on."""
        if self._reached() < offset:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((offset, future))
            await future
        self._load()
        self._caught_up = True
        self._all_changed = True
        self._publish(EMPTY_IMAGE)

    async def until_metadata_version(self, level: int) -> None:
        """Return once the finalized metadata.version is at least `level`."""
        if self.image.metadata_version < level:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaited_levels.append((level, future))
            await future

    def _reached(self) -> int:
        return max(self.image.offset, -1 if self._replayed.in_transaction else self._seen)

    # ---- raft's Listener

    def on_commit(self, batch: "CommittedBatch") -> None:
        """Apply a committed batch."""
        if self._caught_up:
            for record in batch.records:
                self._note(record)
        if self._own is not None:
            self._own.replay_batch(batch.records, last_offset=batch.last_offset, epoch=batch.epoch)
            self._own.commit(batch.last_offset)
        self._seen = batch.last_offset
        self._take_image()

    def prepare_commit(self, batch: "CommittedBatch") -> "Iterator[int]":
        """Replay a committed batch in pieces, unless the controller does."""
        if self._own is not None:
            yield from self._own.prepare(batch.records)

    def on_snapshot(self, image: "ClusterImage") -> None:
        """Replace the image by a snapshot's."""
        if self._own is not None:
            self._own.load(image)
        self._seen = image.offset
        self._all_changed = True
        self._take_image()

    def on_leader_change(self, leader_id: "BrokerId | None", epoch: "LeaderEpoch") -> None:
        """Pass the new controller to the leader listeners."""
        _ = epoch
        for listener in self._leader_listeners:
            listener(leader_id)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Advance the offset past batches without metadata records."""
        self._seen = max(self._seen, high_watermark - 1)
        self._load()
        self._release()

    def _load(self) -> None:
        """Give the followers the first image."""
        if not self._is_loaded:
            self._is_loaded = True
            self._inform_followers()

    def _inform_followers(self) -> None:
        for follower in self._followers:
            follower(self._image)

    def _note(self, record: Any) -> None:
        """Remember the topics that `record` may change."""
        if isinstance(record, ConfigRecord):
            if record.resource_type != ResourceType.TOPIC:
                self._all_changed = True
                return
            # A topic that is not in the image yet was noted with its own record.
            topic_id = self._image.topics_by_name.get(record.resource_name)
            if topic_id is not None:
                self._changed.add(topic_id)
            return
        topic_id = getattr(record, "topic_id", None)
        if topic_id is not None and topic_id not in self._changed:
            self._changed.add(Uuid(topic_id))

    def _take_image(self) -> None:
        """Publish the stable image if it changed."""
        before, self._image = self._image, self._replayed.stable
        if self._image is not before:
            if self._is_loaded:
                self._inform_followers()
            self._publish(before)

    def _publish(self, before: "ClusterImage") -> None:
        if self._caught_up:
            changed = None if self._all_changed else sorted(self._changed)
            self._all_changed = False
            self._changed = set()
            image = self.image
            for subscriber in self._subscribers:
                subscriber(before, image, changed)
        self._release()

    def _release(self) -> None:
        for level, future in self._awaited_levels:
            if self.image.metadata_version >= level and not future.done():
                future.set_result(None)
        if not self._waiting:
            return
        reached = self._reached()
        still = []
        for offset, future in self._waiting:
            if future.done():
                continue
            if offset <= reached:
                future.set_result(None)
            else:
                still.append((offset, future))
        self._waiting = still
