"""Configs and client quotas of a cluster in ZooKeeper mode, and the notifications of their changes.

    /config/changes/config_change_N → the znode of the entity, read now → a new image

Kafka 3.9 (`ZkConfigManager`, `ZkNodeChangeNotificationListener`): the watch is set first, then all
entities are read. A notification is carried out once, in order; a new session reads everything
again. Each broker deletes notifications older than 15 minutes. A malformed notification is logged
and skipped.

Not done: SCRAM credentials in `/config/users`, encrypted values of broker configs.
"""

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from immutables import Map

from sparkraft.metadata.image import ResourceType
from sparkraft.security.quotas import (
    CLIENT_ID,
    IP,
    IP_KEYS,
    USER,
    USER_AND_CLIENT_KEYS,
    QuotaEntity,
    quota_entity,
)
from sparkraft.zookeeper.errors import NoNodeError, SessionExpiredError, ZooKeeperError
from sparkraft.zookeeper.exchange import EventType
from sparkraft.zookeeper.requests import Delete, GetChildren, GetData
from sparkraft.zookeeper.znodes.changes import decode_config_change
from sparkraft.zookeeper.znodes.json_form import ZnodeError
from sparkraft.zookeeper.znodes.topics import CONFIG, decode_configs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from immutables import MapMutation

    from sparkraft.base.env import Clock
    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.zookeeper.images import ZooKeeperImages
    from sparkraft.server.zookeeper.session import EnsembleSession
    from sparkraft.zookeeper.exchange import WatchEvent
    from sparkraft.zookeeper.requests import Request, Stat

    Configs = MapMutation[tuple[int, str], Map[str, str]]
    Quotas = MapMutation[QuotaEntity, Map[str, float]]

log = logging.getLogger(__name__)

CHANGES = f"{CONFIG}/changes"

KEEP_MS = 15 * 60_000
"""Age from which a notification is deleted: Kafka's `changeExpirationMs`."""

DEFAULT_ENTITY = "<default>"
"""Name of the znode for all brokers, users, client ids or addresses."""

_RESOURCES = {"topics": ResourceType.TOPIC, "brokers": ResourceType.BROKER}
_QUOTAS = {"clients": CLIENT_ID, "users": USER, "ips": IP}
_NUMBER = re.compile(r"config_change_([0-9]{10})")


class ZooKeeperConfigs:
    """See the module docstring."""

    def __init__(
        self, session: "EnsembleSession", images: "ZooKeeperImages", clock: "Clock"
    ) -> None:
        self._session = session
        self._images = images
        self._clock = clock
        self._last = -1
        """Number of the last notification that was carried out."""
        self._wake = asyncio.Event()
        session.add_watcher(self._on_event)
        session.add_session_listener(self.load)

    def _on_event(self, event: "WatchEvent") -> None:
        if event.path == CHANGES and event.type is EventType.NODE_CHILDREN_CHANGED:
            self._wake.set()

    async def load(self) -> None:
        """Watch the notifications, then read every entity and publish an image."""
        numbers = await self._numbers()
        self._last = max(numbers, default=self._last)
        configs: Configs = Map[tuple[int, str], Map[str, str]]().mutate()
        quotas: Quotas = Map[QuotaEntity, Map[str, float]]().mutate()
        for path in await self._entities():
            await self._read_into(path, configs, quotas)
        image = self._images.image._replace(configs=configs.finish(), quotas=quotas.finish())
        self._images.publish(image, None)

    async def run(self) -> None:
        """Carry out notifications until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._carry_out()
            except SessionExpiredError:
                continue  # the next session reads everything
            except ZooKeeperError as error:
                log.warning("Config changes could not be read: %s", error)

    # ---- notifications

    async def _numbers(self) -> dict[int, str]:
        """Number → path of each notification, in order; sets the watch."""
        names, _ = await self._submit(GetChildren(path=CHANGES, watch=True))
        found = {int(m[1]): f"{CHANGES}/{m[0]}" for m in map(_NUMBER.fullmatch, names) if m}
        return dict(sorted(found.items()))

    async def _carry_out(self) -> None:
        numbers = await self._numbers()
        for number, path in numbers.items():
            try:
                data, stat = await self._submit(GetData(path=path))
            except NoNodeError:
                continue  # another broker has deleted it
            if number > self._last:
                self._last = number
                await self._apply(path, data)
            await self._maybe_delete(path, stat)

    async def _apply(self, path: str, data: bytes) -> None:
        try:
            entity = decode_config_change(path, data)
        except ZnodeError as error:
            log.warning("A config change is ignored: %s", error)
            return
        log.info("Configs of %s have changed", entity)
        image = self._images.image
        configs, quotas = image.configs.mutate(), image.quotas.mutate()
        await self._read_into(entity, configs, quotas)
        image = self._images.image._replace(configs=configs.finish(), quotas=quotas.finish())
        self._images.publish(image, _topics_of(image, entity))

    async def _maybe_delete(self, path: str, stat: "Stat") -> None:
        if self._clock.wall_ms() - stat.ctime < KEEP_MS:
            return
        try:
            await self._submit(Delete(path=path))
        except NoNodeError:
            return

    # ---- entities

    async def _entities(self) -> list[str]:
        """The path below /config of each entity."""
        found = []
        for kind in (*_RESOURCES, *_QUOTAS):
            names, _ = await self._submit(GetChildren(path=f"{CONFIG}/{kind}"))
            found += [f"{kind}/{name}" for name in sorted(names)]
        for user in [path for path in found if path.startswith("users/")]:
            try:
                clients, _ = await self._submit(GetChildren(path=f"{CONFIG}/{user}/clients"))
            except NoNodeError:
                continue
            found += [f"{user}/clients/{client}" for client in sorted(clients)]
        return found

    async def _read_into(self, entity: str, configs: "Configs", quotas: "Quotas") -> None:
        """Replace an entity's configs by those in its znode; a malformed one keeps them."""
        path = f"{CONFIG}/{entity}"
        try:
            data, _ = await self._submit(GetData(path=path))
            values = decode_configs(path, data)
        except NoNodeError:
            values = {}
        except ZnodeError as error:
            log.warning("Configs are ignored: %s", error)
            return
        kind, _, name = entity.partition("/")
        resource = _RESOURCES.get(kind)
        if resource is not None:
            shown = "" if name == DEFAULT_ENTITY else name
            _put(configs, (resource, shown), Map(values))
        elif kind in _QUOTAS:
            _put(quotas, _quota_entity(entity), _quotas_in(values, is_ip=kind == "ips"))

    async def _submit(self, request: "Request") -> Any:
        return await self._session.client.submit_until_connected(request)


def _put(values: "MapMutation[Any, Any]", key: object, value: Map[str, Any]) -> None:
    if value:
        values[key] = value
    else:
        values.pop(key, None)


def _topics_of(image: "ClusterImage", entity: str) -> "Sequence[Uuid] | None":
    """The ids of the topics whose configs an entity may change; None: all."""
    kind, _, name = entity.partition("/")
    if kind == "brokers":
        return None
    topic_id = image.topics_by_name.get(name) if kind == "topics" else None
    return [] if topic_id is None else [topic_id]


def _quota_entity(path: str) -> QuotaEntity:
    """`users/alice/clients/c1` as an entity; names are URL-encoded (`Sanitizer`)."""
    names = path.split("/")
    pairs = zip(names[::2], names[1::2], strict=False)
    return quota_entity(
        (_QUOTAS[kind], None if name == DEFAULT_ENTITY else unquote(name)) for kind, name in pairs
    )


def _quotas_in(values: "Mapping[str, str]", *, is_ip: bool) -> Map[str, float]:
    """The quotas of an entity, without a user's SCRAM credentials."""
    keys = IP_KEYS if is_ip else USER_AND_CLIENT_KEYS
    found = {}
    for key in sorted(keys.intersection(values)):
        try:
            found[key] = float(values[key])
        except ValueError:
            log.warning("A quota is ignored: %s=%r is not a number", key, values[key])
    return Map(found)
