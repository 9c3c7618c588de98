"""The finalized features of a cluster in ZooKeeper mode, which each broker follows (KIP-584).

    /feature → finalized levels and their epoch, the version of the znode → ApiVersions

A znode that is absent, disabled or malformed finalizes no feature, and has no epoch. Before
inter.broker.protocol.version 2.7 it is not read. A new session reads it again.

Kafka 3.9: `FinalizedFeatureChangeListener`, `ZkMetadataCache.updateFeaturesOrThrow`. Kafka's broker
exits if a feature is finalized, because it supports none in this mode. Here it is logged.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from sparkraft.zookeeper.errors import NoNodeError, SessionExpiredError, ZooKeeperError
from sparkraft.zookeeper.requests import Exists, GetData
from sparkraft.zookeeper.znodes.cluster import FEATURE, decode_features
from sparkraft.zookeeper.znodes.json_form import ZnodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.server.zookeeper.session import EnsembleSession
    from sparkraft.zookeeper.exchange import WatchEvent
    from sparkraft.zookeeper.requests import Request

log = logging.getLogger(__name__)

NO_EPOCH = -1
"""Of the features before they are known."""


class FinalizedFeatures:
    """See the module docstring.

    Attributes:
        levels: feature → its finalized level.
        epoch: version of the znode; -1 if no features are enabled.
    """

    def __init__(self, session: "EnsembleSession", *, enabled: bool) -> None:
        """Know none yet.

        Args:
            session: with the ensemble.
            enabled: whether inter.broker.protocol.version has features.
        """
        self.levels: Mapping[str, int] = {}
        self.epoch = NO_EPOCH
        self._session = session
        self._enabled = enabled
        self._wake = asyncio.Event()
        if enabled:
            session.add_watcher(self._on_event)
            session.add_session_listener(self.load)

    def _on_event(self, event: "WatchEvent") -> None:
        if event.path == FEATURE:
            self._wake.set()

    async def load(self) -> None:
        """Watch the znode, and read it."""
        if not self._enabled:
            return
        try:
            await self._submit(Exists(path=FEATURE, watch=True))
            data, stat = await self._submit(GetData(path=FEATURE, watch=True))
            found = decode_features(FEATURE, data)
        except NoNodeError:
            self.levels, self.epoch = {}, NO_EPOCH
            return
        except ZnodeError as error:
            log.warning("No feature is finalized: %s", error)
            self.levels, self.epoch = {}, NO_EPOCH
            return
        self.levels = found.levels if found.enabled else {}
        self.epoch = stat.version if found.enabled else NO_EPOCH
        for name, level in sorted(self.levels.items()):
            log.error(
                "%s finalizes %s at level %d, which this broker does not support in ZooKeeper mode",
                FEATURE,
                name,
                level,
            )

    async def run(self) -> None:
        """Follow changes until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.load()
            except SessionExpiredError:
                continue  # the next session reads it
            except ZooKeeperError as error:
                log.warning("Finalized features could not be read: %s", error)

    async def _submit(self, request: "Request") -> Any:
        return await self._session.client.submit_until_connected(request)
