"""AlterConfigs, IncrementalAlterConfigs and AlterClientQuotas of a cluster in ZooKeeper mode.

Any broker serves them, not only the controller. The decisions are those of KRaft mode
(`controller.configs`, `controller.client_quotas`), on configs that were read just before. As Kafka
3.9 (`ZkAdminManager`, `AdminZkClient`) writes them:

    the whole znode of the entity ─► /config/changes/config_change_N, which all brokers follow

Of two changes at the same time the last one remains, as in Kafka. A user's znode has quotas and
SCRAM credentials; the credentials are kept. An entity of quotas without any is deleted, unless it
is a user that has quotas for client ids.

Not done: passwords among the configs of brokers, which Kafka encrypts; groups and client metrics,
which ZooKeeper mode does not have.
"""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller import client_quotas, configs
from sparkraft.metadata.configs import BROKER_CONFIGS, ConfigType
from sparkraft.metadata.configs.definition import java_double
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.messages.metadata_records import ClientQuotaRecord, ConfigRecord
from sparkraft.security.quotas import INTEGRAL_MAX, quota_entity
from sparkraft.server.controller.submission import set_error
from sparkraft.server.zookeeper.config_writes import write_config
from sparkraft.server.zookeeper.configs import CHANGES
from sparkraft.zookeeper.errors import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from sparkraft.zookeeper.requests import ANY_VERSION, Create, Delete, GetData
from sparkraft.zookeeper.znodes.changes import encode_config_change
from sparkraft.zookeeper.znodes.entities import DEFAULT_ENTITY, quota_path
from sparkraft.zookeeper.znodes.topics import CONFIG, decode_configs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkraft.controller.call import Call
    from sparkraft.controller.decision import VersionedRecord
    from sparkraft.controller.decision_context import DecisionContext
    from sparkraft.security.quotas import QuotaEntity
    from sparkraft.server.zookeeper.configs import ZooKeeperConfigs
    from sparkraft.server.zookeeper.session import EnsembleSession
    from sparkraft.zookeeper.client import ZooKeeperClient

log = logging.getLogger(__name__)

_KINDS = {ResourceType.TOPIC: "topics", ResourceType.BROKER: "brokers"}

_KRAFT_ONLY = frozenset({ResourceType.GROUP, ResourceType.CLIENT_METRICS})
"""Resources that are refused whatever their configs are."""


class ConfigChanges:
    """Serves the requests; see the module docstring."""

    def __init__(
        self,
        session: "EnsembleSession",
        present: "ZooKeeperConfigs",
        context: "Callable[[], DecisionContext]",
    ) -> None:
        """Prepare.

        Args:
            session: with the ensemble.
            present: reads entities into the image.
            context: for decisions on the present image.
        """
        self._session = session
        self._present = present
        self._context = context
        self._merging = asyncio.Lock()
        """Held from a read of an entity to its write: a user has quotas and credentials."""

    # ---- configs

    async def alter_configs(self, call: "Call[Any]") -> Any:
        """AlterConfigs: replace all configs of each resource."""
        return await self._alter(call, configs.alter_configs)

    async def incremental_alter_configs(self, call: "Call[Any]") -> Any:
        """IncrementalAlterConfigs: change single configs."""
        return await self._alter(call, configs.incremental_alter_configs)

    async def _alter(self, call: "Call[Any]", decide: "Callable[..., Any]") -> Any:
        await self._present.read(
            entity
            for resource in call.request.resources
            if (entity := _entity_of(resource.resource_type, resource.resource_name)) is not None
        )
        context = self._context()
        decision = decide(context, call)
        response = decision.response
        refused = _refuse_unavailable(response.responses, decision.records)
        changed: dict[tuple[int, str], dict[str, str]] = {}
        for record, _ in decision.records:
            if not isinstance(record, ConfigRecord):
                continue
            key = (record.resource_type, record.resource_name)
            if key in refused:
                continue
            values = changed.setdefault(key, dict(context.image.config(*key)))
            if record.value is None:
                values.pop(record.name, None)
            else:
                values[record.name] = record.value
        for (kind, name), values in changed.items():
            entity = _entity_of(kind, name)
            assert entity is not None, "the others were refused"
            await self._write(entity, values)
        return response

    async def _write(self, entity: str, values: dict[str, str]) -> None:
        client = self._session.client
        await write_config(client, entity, values)
        await _notify(client, entity)

    # ---- quotas

    async def alter_client_quotas(self, call: "Call[Any]") -> Any:
        """AlterClientQuotas: set and remove quotas of users, client ids and addresses."""
        entities = {
            quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
            for entry in call.request.entries
        }
        paths = {each: path for each in entities if (path := quota_path(each)) is not None}
        await self._present.read(paths.values())
        decision = client_quotas.alter_client_quotas(self._context(), call)
        for entity, changes in _quota_changes(decision.records).items():
            await self.merge(paths[entity], changes)
        return decision.response

    async def merge(self, entity: str, changes: dict[str, str | None]) -> None:
        """Set some configs of an entity of quotas, and remove those that are None.

        Raises:
            KafkaError: see `write_config`.
        """
        client = self._session.client
        path = f"{CONFIG}/{entity}"
        async with self._merging:
            values: dict[str, str] = {}
            with suppress(NoNodeError):
                data, _ = await client.submit_until_connected(GetData(path=path))
                values = decode_configs(path, data)
            for key, value in changes.items():
                if value is None:
                    values.pop(key, None)
                else:
                    values[key] = value
            if values or not await _delete(client, path):
                await write_config(client, entity, values)
        await _notify(client, entity)


async def _notify(client: "ZooKeeperClient", entity: str) -> None:
    log.debug("Changed the configs of %s", entity)
    with suppress(NodeExistsError):
        await client.create_recursive(CHANGES)
    path = f"{CHANGES}/config_change_"
    data = encode_config_change(entity)
    await client.submit_until_connected(Create(path=path, data=data, sequential=True))


async def _delete(client: "ZooKeeperClient", path: str) -> bool:
    """Delete an entity without quotas; false if it has others below (`tryCleanQuotaNodes`).

    After the last client id of a user, `clients` is deleted, and the user if it has no configs.
    """
    if not await _delete_unless_parent(client, path):
        return False
    parent = path.rpartition("/")[0]
    is_of_user = parent.endswith("/clients") and parent != f"{CONFIG}/clients"
    if is_of_user and await _delete_unless_parent(client, parent):
        user = parent.rpartition("/")[0]
        with suppress(NoNodeError):
            data, stat = await client.submit_until_connected(GetData(path=user))
            if not decode_configs(user, data):
                await _delete_unless_parent(client, user, stat.version)
    return True


async def _delete_unless_parent(
    client: "ZooKeeperClient", path: str, version: int = ANY_VERSION
) -> bool:
    """Delete a znode that may be gone; false if it has others below, or another version."""
    try:
        await client.submit_until_connected(Delete(path=path, version=version))
    except NoNodeError:
        return True
    except (NotEmptyError, BadVersionError):
        return False
    return True


def _entity_of(kind: int, name: str) -> str | None:
    """The path below /config of a resource; None if it has none there."""
    folder = _KINDS.get(kind)
    return None if folder is None else f"{folder}/{name or DEFAULT_ENTITY}"


def _refuse_unavailable(
    results: "Iterable[Any]", records: "Iterable[VersionedRecord]"
) -> set[tuple[int, str]]:
    """Set the errors of resources and values that ZooKeeper mode does not have here."""
    secret = {
        (record.resource_type, record.resource_name)
        for record, _ in records
        if isinstance(record, ConfigRecord) and _is_secret(record)
    }
    refused = set()
    for result in results:
        key = (result.resource_type, result.resource_name)
        if result.error_code and result.resource_type not in _KRAFT_ONLY:
            continue
        if _entity_of(*key) is None:
            wrong = "ZooKeeper mode has configs of topics and brokers only."
            set_error(result, KafkaError(ErrorCode.INVALID_REQUEST, wrong))
            refused.add(key)
        elif key in secret:
            wrong = "Passwords in dynamic configs are not available in ZooKeeper mode."
            set_error(result, KafkaError(ErrorCode.INVALID_REQUEST, wrong))
            refused.add(key)
    return refused


def _is_secret(record: ConfigRecord) -> bool:
    defined = BROKER_CONFIGS.get(record.name)
    return (
        record.resource_type == ResourceType.BROKER
        and record.value is not None
        and defined is not None
        and defined.kind is ConfigType.PASSWORD
    )


def _quota_changes(
    records: "Iterable[VersionedRecord]",
) -> "dict[QuotaEntity, dict[str, str | None]]":
    """Entity → key → value; None removes the key."""
    found: dict[QuotaEntity, dict[str, str | None]] = {}
    for record, _ in records:
        if isinstance(record, ClientQuotaRecord):
            entity = quota_entity((part.entity_type, part.entity_name) for part in record.entity)
            value = None if record.remove else _text_of(record.key, record.value)
            found.setdefault(entity, {})[record.key] = value
    return found


def _text_of(key: str, value: float) -> str:
    """A rate in bytes without a fraction; other values as Java writes a double."""
    return str(int(value + 1e-6)) if key in INTEGRAL_MAX else java_double(value)
