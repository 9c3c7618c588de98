"""Configs, quotas and SCRAM credentials of a cluster in ZooKeeper mode, and their changes.

    /config/changes/config_change_N → the znode of the entity, read now → a new image

Kafka 3.9 (`ZkConfigManager`): the watch is set first, then all entities are read. The configs of a
new topic have no notification; they are read when the topic is first seen, before its log is
created (`LogManager.fetchLogConfig`). A new session reads everything again. The znode of a user has
its quotas and its SCRAM credentials.

Not done: encrypted values of broker configs.
"""

import asyncio
import logging
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
from sparkraft.security.scram import BY_NAME
from sparkraft.server.zookeeper.notifications import ChangeNotifications
from sparkraft.zookeeper.errors import NoNodeError, SessionExpiredError, ZooKeeperError
from sparkraft.zookeeper.requests import GetChildren, GetData
from sparkraft.zookeeper.znodes.changes import decode_config_change
from sparkraft.zookeeper.znodes.credentials import decode_credential
from sparkraft.zookeeper.znodes.entities import DEFAULT_ENTITY
from sparkraft.zookeeper.znodes.json_form import ZnodeError
from sparkraft.zookeeper.znodes.topics import CONFIG, decode_configs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from immutables import MapMutation

    from sparkraft.base.env import Clock
    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import ClusterImage, ScramCredential
    from sparkraft.server.zookeeper.images import ZooKeeperImages
    from sparkraft.server.zookeeper.session import EnsembleSession
    from sparkraft.zookeeper.requests import Request

log = logging.getLogger(__name__)

CHANGES = f"{CONFIG}/changes"

_RESOURCES = {"topics": ResourceType.TOPIC, "brokers": ResourceType.BROKER}
_QUOTAS = {"clients": CLIENT_ID, "users": USER, "ips": IP}


class _Entities:
    """The part of an image that comes from `/config`, while it is changed.

    Attributes:
        configs: resource → its configs.
        quotas: entity → its quotas.
        scram: mechanism and user → credential.
    """

    def __init__(
        self,
        configs: "Map[tuple[int, str], Map[str, str]]",
        quotas: "Map[QuotaEntity, Map[str, float]]",
        scram: "Map[tuple[int, str], ScramCredential]",
    ) -> None:
        self.configs: MapMutation[tuple[int, str], Map[str, str]] = configs.mutate()
        self.quotas: MapMutation[QuotaEntity, Map[str, float]] = quotas.mutate()
        self.scram: MapMutation[tuple[int, str], ScramCredential] = scram.mutate()

    def put(self, entity: str, values: "Mapping[str, str]") -> None:
        """Replace the configs of an entity, such as `topics/t`; without values it has none."""
        kind, _, name = entity.partition("/")
        resource = _RESOURCES.get(kind)
        if resource is not None:
            shown = "" if name == DEFAULT_ENTITY else name
            _put(self.configs, (resource, shown), Map(values))
        elif kind in _QUOTAS:
            _put(self.quotas, _quota_entity(entity), _quotas_in(values, is_ip=kind == "ips"))
            if kind == "users" and "/" not in name and name != DEFAULT_ENTITY:
                self._put_credentials(entity, unquote(name), values)

    def _put_credentials(self, entity: str, user: str, values: "Mapping[str, str]") -> None:
        for mechanism in BY_NAME.values():
            found = None
            if mechanism.name in values:
                try:
                    found = decode_credential(
                        f"{CONFIG}/{entity}", mechanism.name, values[mechanism.name]
                    )
                except ZnodeError as error:
                    log.warning("A credential is ignored: %s", error)
            _put(self.scram, (mechanism.type, user), found)

    def on(self, image: "ClusterImage") -> "ClusterImage":
        """The image with these configs, quotas and credentials."""
        return image._replace(
            configs=self.configs.finish(),
            quotas=self.quotas.finish(),
            scram=self.scram.finish(),
        )


class ZooKeeperConfigs:
    """See the module docstring."""

    def __init__(
        self, session: "EnsembleSession", images: "ZooKeeperImages", clock: "Clock"
    ) -> None:
        self._session = session
        self._images = images
        self._changes = ChangeNotifications(
            session, clock, f"{CHANGES}/config_change_", self._on_change
        )
        self._listeners: list[Callable[[str], None]] = []
        self._topics: set[str] = set()
        """Topics whose configs are in the image, if they have any."""
        self._reading = asyncio.Lock()
        """Held from a read to the image with it: an older read never replaces a newer one."""
        session.add_session_listener(self.load)

    def add_listener(self, listener: "Callable[[str], None]") -> None:
        """Call `listener` with each entity, such as `topics/t`, whose change is in the image."""
        self._listeners.append(listener)

    async def load(self) -> None:
        """Watch the notifications, then read every entity and publish an image."""
        async with self._reading:
            await self._changes.skip()
            found = await self._fetch(await self._entities())
            entities = _Entities(Map(), Map(), Map())
            for entity, values in found.items():
                entities.put(entity, values)
            self._topics = {
                entity.removeprefix("topics/") for entity in found if entity.startswith("topics/")
            }
            self._images.publish(entities.on(self._images.image), None)

    async def read(self, entities: "Iterable[str]") -> None:
        """Read entities, such as `topics/t`, and publish an image."""
        async with self._reading:
            self._publish(await self._fetch(list(dict.fromkeys(entities))))

    async def learn(self, topics: "Iterable[str]") -> None:
        """Read the configs of topics that are seen for the first time.

        A new topic's configs are written before the topic, and without a notification. While there
        is no session they stay unknown: the next one reads everything.
        """
        new = [topic for topic in dict.fromkeys(topics) if topic not in self._topics]
        if not new:
            return
        async with self._reading:
            try:
                found = await self._fetch([f"topics/{topic}" for topic in new])
            except SessionExpiredError:
                return
            self._topics.update(entity.removeprefix("topics/") for entity in found)
            self._publish(found)

    def forget(self, topics: "Iterable[str]") -> None:
        """Note that topics were deleted; one of the same name may have other configs."""
        self._topics.difference_update(topics)

    async def run(self) -> None:
        """Follow notifications until cancelled."""
        await self._changes.run()

    async def _on_change(self, path: str, data: bytes) -> None:
        entity = decode_config_change(path, data)
        log.info("Configs of %s have changed", entity)
        await self.read([entity])
        for listener in self._listeners:
            listener(entity)

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

    async def _fetch(self, entities: "Sequence[str]") -> dict[str, dict[str, str]]:
        """The configs of entities; without those that are malformed or could not be read.

        Raises:
            SessionExpiredError: the session has ended.
        """
        requests: list[Request] = [GetData(path=f"{CONFIG}/{entity}") for entity in entities]
        results = await self._session.client.submit_all(requests)
        found: dict[str, dict[str, str]] = {}
        for entity, result in zip(entities, results, strict=True):
            if isinstance(result, NoNodeError):
                found[entity] = {}
            elif isinstance(result, ZooKeeperError) and not isinstance(result, SessionExpiredError):
                log.warning("The configs of %s could not be read: %s", entity, result)
            elif isinstance(result, BaseException):
                raise result
            else:
                try:
                    found[entity] = decode_configs(f"{CONFIG}/{entity}", result[0])
                except ZnodeError as error:
                    log.warning("Configs are ignored: %s", error)
        return found

    def _publish(self, found: "Mapping[str, Mapping[str, str]]") -> None:
        """Publish an image with these configs; all others are those of the newest image."""
        image = self._images.image
        entities = _Entities(image.configs, image.quotas, image.scram)
        for entity, values in found.items():
            entities.put(entity, values)
        image = entities.on(image)
        self._images.publish(image, _topics_of(image, found))

    async def _submit(self, request: "Request") -> Any:
        return await self._session.client.submit_until_connected(request)


def _put(values: "MapMutation[Any, Any]", key: object, value: Any) -> None:
    if value:
        values[key] = value
    else:
        values.pop(key, None)


def _topics_of(image: "ClusterImage", entities: "Iterable[str]") -> "Sequence[Uuid] | None":
    """The ids of the topics whose configs entities may change; None: all."""
    ids = []
    for entity in entities:
        kind, _, name = entity.partition("/")
        if kind == "brokers":
            return None
        topic_id = image.topics_by_name.get(name) if kind == "topics" else None
        if topic_id is not None:
            ids.append(topic_id)
    return ids


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
