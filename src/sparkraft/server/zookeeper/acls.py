"""Access control lists of a cluster in ZooKeeper mode, read and changed.

    /kafka-acl-changes/acl_changes_N, /kafka-acl-extended-changes/acl_changes_N
        → the znode of the resource, read now → `StandardAuthorizer`, and a new image

The rules are those of Kafka 3.9's `AclAuthorizer`; its decisions are those of the
StandardAuthorizer of KRaft mode, on the same entries. Any broker changes lists:

    * The znode of a resource has all its entries, and is deleted with the last one.
    * A write is conditional on the version that was read; if it fails, everything begins again.
    * The broker that changes a list enforces it at once, the others when they are notified.
    * Of several filters that select an entry, the first one reports it (KRaft: each of them).

All lists are loaded before the broker registers. A malformed one prevents the start; later it
leaves the entries of its resource unchanged, and is logged.

Difference: Kafka does not notify the other brokers if the reply to a write was lost and the second
attempt found it applied. Here they are notified.

Not available: an ensemble of its own for lists (`authorizer.zookeeper.url`).
"""

import asyncio
import logging
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.env import random_uuid
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.loop_work import LoopBound
from sparkraft.controller.acls import checked_filter, match_of, new_acl
from sparkraft.protocol.messages import k30_create_acls as k30
from sparkraft.protocol.messages import k31_delete_acls as k31
from sparkraft.security.acls import AclOperation, AclResourceType, PatternType
from sparkraft.server.controller.submission import set_error
from sparkraft.server.zookeeper.notifications import ChangeNotifications
from sparkraft.zookeeper.errors import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    ZooKeeperError,
)
from sparkraft.zookeeper.requests import Create, Delete, GetChildren, GetData, SetData
from sparkraft.zookeeper.znodes.acl_resources import (
    ACL_ROOTS,
    LITERAL_CHANGES,
    PREFIXED_CHANGES,
    RESOURCE_TYPES,
    AclResource,
    changed_resource,
    decode_entries,
    encode_entries,
    named,
    word_of,
)
from sparkraft.zookeeper.znodes.json_form import ZnodeError
from sparkraft.zookeeper.znodes.security import decode_acl_change, decode_extended_acl_change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from sparkraft.base.ids import Uuid
    from sparkraft.controller.call import Call
    from sparkraft.security.acl_filter import AclFilter
    from sparkraft.security.acls import Acl
    from sparkraft.security.standard_authorizer import StandardAuthorizer
    from sparkraft.server.env import Env
    from sparkraft.server.zookeeper.images import ZooKeeperImages
    from sparkraft.server.zookeeper.session import EnsembleSession

    Entries = frozenset[Acl]

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRIES_MAX = 10
"""Writes of one resource after the first: Kafka's `maxUpdateRetries`."""

BACKOFF_MS, JITTER_MS = 100, 50
"""Before each: Kafka's `retryBackoffMs` and `retryBackoffJitterMs`."""

RESOURCES_AT_ONCE: LoopBound = 50
"""Resources that are decoded, or compared with filters, before the event loop continues."""

LIST_BYTES_ON_LOOP: LoopBound = 32 * 1024
"""A longer list takes more than a millisecond: at 1 MiB, ZooKeeper's bound, about 40."""

ENTRY_BYTES = 80
"""Of a usual entry."""

SINCE_KAFKA_4 = frozenset({AclOperation.TWO_PHASE_COMMIT})
"""Operations that Kafka 3.9 does not know."""

_INVALID = "Failed to create ACL"
"""Kafka's message for entries that it cannot store."""


class ZooKeeperAcls:
    """See the module docstring."""

    def __init__(
        self,
        session: "EnsembleSession",
        images: "ZooKeeperImages",
        env: "Env",
        authorizer: "StandardAuthorizer",
    ) -> None:
        """Prepare.

        Args:
            session: with the ensemble.
            images: takes the entries, for DescribeAcls.
            env: clock and random numbers.
            authorizer: enforces the entries.
        """
        self._session = session
        self._images = images
        self._env = env
        self._authorizer = authorizer
        self._ids: dict[AclResource, dict[Acl, Uuid]] = {}
        """The entries of each resource that has some, with their ids in images."""
        self._changing = asyncio.Lock()
        """Held from a read to its result, so that an older read never replaces a newer one."""
        self._literal = ChangeNotifications(
            session, env.clock, f"{LITERAL_CHANGES}/acl_changes_", self._on_literal_change
        )
        self._prefixed = ChangeNotifications(
            session, env.clock, f"{PREFIXED_CHANGES}/acl_changes_", self._on_prefixed_change
        )

    # ---- reading

    async def load(self) -> None:
        """Create the znodes above all lists, read all lists, and enforce them from now on.

        Raises:
            ZnodeError: a list is malformed.
        """
        for root in ACL_ROOTS.values():
            for kind in RESOURCE_TYPES:
                await self._session.client.create_recursive(f"{root}/{word_of(kind)}")
        for path in (LITERAL_CHANGES, PREFIXED_CHANGES):
            await self._session.client.create_recursive(path)
        await self._read_all(is_strict=True)
        self._authorizer.complete_load()
        self._session.add_session_listener(self._load_again)
        log.info("Loaded the access control lists of %d resources", len(self._ids))

    async def _load_again(self) -> None:
        await self._read_all(is_strict=False)

    async def _read_all(self, *, is_strict: bool) -> None:
        async with self._changing:
            await self._literal.skip()
            await self._prefixed.skip()
            resources = await self._resources()
            present = set(resources)
            for piece in _pieces([each for each in self._ids if each not in present]):
                self._set(dict.fromkeys(piece, frozenset()))
                await asyncio.sleep(0)
            for piece in _pieces(resources):
                self._set(await self._fetch(piece, is_strict=is_strict))
                await asyncio.sleep(0)

    async def _resources(self) -> list[AclResource]:
        found = []
        for pattern, root in ACL_ROOTS.items():
            for word in sorted(await self._children(root)):
                try:
                    kind = named(root, AclResourceType, word)
                except ZnodeError:
                    log.warning("Ignoring unknown ResourceType: %s", word)
                    continue
                names = await self._children(f"{root}/{word}")
                found += [AclResource(kind, pattern, name) for name in sorted(names)]
        return found

    async def _children(self, path: str) -> list[str]:
        try:
            names, _ = await self._session.client.submit_until_connected(GetChildren(path=path))
        except NoNodeError:
            return []
        return list(names)

    async def _fetch(
        self, resources: "list[AclResource]", *, is_strict: bool
    ) -> "dict[AclResource, Entries]":
        """The entries of resources; without those that could not be read, unless `is_strict`."""
        results = await self._session.client.submit_all(
            [GetData(path=each.path) for each in resources]
        )
        found: dict[AclResource, Entries] = {}
        for resource, result in zip(resources, results, strict=True):
            if isinstance(result, NoNodeError):
                found[resource] = frozenset()
                continue
            try:
                if isinstance(result, BaseException):
                    raise result
                found[resource] = await self._decoded(resource, result[0])
            except ZnodeError as error:
                if is_strict:
                    raise
                log.error("The former access control list stays in force: %s", error)  # noqa: TRY400
        return found

    def _set(self, found: "Mapping[AclResource, Entries]") -> None:
        """Enforce the entries of resources, and publish an image with them."""
        before = self._images.image.acls
        acls = before.mutate()
        for resource, entries in found.items():
            ids = self._ids.setdefault(resource, {})
            removed = [each for each in ids if each not in entries]
            added = sorted(each for each in entries if each not in ids)
            if removed or added:
                self._authorizer.change(removed=removed, added=added)
            for acl in removed:
                del acls[ids.pop(acl)]
            for acl in added:
                ids[acl] = random_uuid(self._env.entropy)
                acls[ids[acl]] = acl
            if not ids:
                del self._ids[resource]
        after = acls.finish()
        if after is not before:
            self._images.publish(self._images.image._replace(acls=after), ())

    # ---- notifications

    async def run(self) -> None:
        """Follow notifications until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._literal.run())
            tasks.create_task(self._prefixed.run())

    async def _on_literal_change(self, path: str, data: bytes) -> None:
        await self._read_again(changed_resource(path, decode_acl_change(path, data)))

    async def _on_prefixed_change(self, path: str, data: bytes) -> None:
        await self._read_again(changed_resource(path, decode_extended_acl_change(path, data)))

    async def _read_again(self, resource: AclResource) -> None:
        log.info("The access control list of %s has changed", resource.path)
        async with self._changing:
            self._set(await self._fetch([resource], is_strict=False))

    # ---- changing

    async def create_acls(self, call: "Call[k30.CreateAclsRequest]") -> k30.CreateAclsResponse:
        """CreateAcls: the entries of one resource succeed or fail together."""
        results = [k30.AclCreationResult(error_message=None) for _ in call.request.creations]
        wanted: dict[AclResource, list[tuple[Acl, k30.AclCreationResult]]] = defaultdict(list)
        for creation, result in zip(call.request.creations, results, strict=True):
            try:
                acl = _checked(new_acl(creation))
            except KafkaError as error:
                set_error(result, error)
            else:
                wanted[AclResource.of(acl)].append((acl, result))
        async with self._changing:
            for resource, each in wanted.items():
                added = frozenset(acl for acl, _ in each)
                try:
                    await self._update(resource, added.union)
                except KafkaError as error:
                    for _, result in each:
                        set_error(result, error)
        return k30.CreateAclsResponse(results=results)

    async def delete_acls(self, call: "Call[k31.DeleteAclsRequest]") -> k31.DeleteAclsResponse:
        """DeleteAcls: the first filter that selects an entry reports it."""
        results = [k31.DeleteAclsFilterResult(error_message=None) for _ in call.request.filters]
        filters: dict[int, AclFilter] = {}
        for index, each in enumerate(call.request.filters):
            try:
                filters[index] = checked_filter(each)
            except KafkaError as error:
                set_error(results[index], error)
        async with self._changing:
            for resource in await self._selected(filters.values()):
                for acl, index, failure in await self._delete(resource, filters):
                    match = match_of(acl)
                    if failure is not None:
                        set_error(match, failure)
                    results[index].matching_acls.append(match)
        return k31.DeleteAclsResponse(filter_results=results)

    async def _selected(self, filters: "Iterable[AclFilter]") -> list[AclResource]:
        """Resources that filters select: known ones, and those that a filter names."""
        selected = {resource for each in filters for resource in _named_by(each)}
        for number, resource in enumerate(list(self._ids), 1):
            if any(each.matches_pattern(*resource) for each in filters):
                selected.add(resource)
            if number % RESOURCES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return sorted(selected)

    async def _delete(
        self, resource: AclResource, filters: "Mapping[int, AclFilter]"
    ) -> "list[tuple[Acl, int, KafkaError | None]]":
        """Delete entries of a resource: each with its filter, and why it could not be deleted."""
        deleted: dict[Acl, int] = {}

        def without_selected(current: "Entries") -> "Entries":
            for acl in sorted(current):
                index = next((at for at, each in filters.items() if each.matches(acl)), None)
                if index is not None:
                    deleted.setdefault(acl, index)
            return current.difference(deleted)

        failure = None
        try:
            await self._update(resource, without_selected)
        except KafkaError as error:
            failure = error
        return [(acl, index, failure) for acl, index in deleted.items()]

    async def _update(self, resource: AclResource, change: "Callable[[Entries], Entries]") -> None:
        """Replace the entries of a resource; see `AclAuthorizer.updateResourceAcls`.

        Raises:
            KafkaError: UNKNOWN_SERVER_ERROR if ZooKeeper refuses it, or others change it as often.
        """
        first: Entries | None = None
        try:
            for retry in range(RETRIES_MAX + 1):
                if retry:
                    jitter_ms = self._env.entropy.below(JITTER_MS)
                    await asyncio.sleep((BACKOFF_MS + jitter_ms) / 1000)
                current, version = await self._read(resource)
                first = current if first is None else first
                wanted = change(current)
                if wanted == current or await self._write(resource, wanted, version):
                    self._set({resource: wanted})
                    if wanted != first:
                        await self._notify(resource)
                    return
        except (ZnodeError, ZooKeeperError) as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Failed to update ACLs for {resource.path} after trying a maximum of {RETRIES_MAX} "
            "times",
        )

    async def _read(self, resource: AclResource) -> "tuple[Entries, int | None]":
        """The entries of a resource, and the version of its znode; None without one."""
        try:
            data, stat = await self._submit(GetData(path=resource.path))
        except NoNodeError:
            return frozenset(), None
        return await self._decoded(resource, data), stat.version

    async def _decoded(self, resource: AclResource, data: bytes) -> "Entries":
        return frozenset(await self._apart(len(data), partial(decode_entries, resource, data)))

    async def _encoded(self, entries: "Entries") -> bytes:
        size = len(entries) * ENTRY_BYTES
        return await self._apart(size, partial(encode_entries, entries))

    async def _apart(self, size: int, work: "Callable[[], T]") -> "T":
        """Do work on a list of `size` bytes, off the event loop if it is long."""
        if size <= LIST_BYTES_ON_LOOP:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._env.executor, work)

    async def _write(self, resource: AclResource, entries: "Entries", version: int | None) -> bool:
        """Whether the write was applied: the znode had this version."""
        path = resource.path
        data = await self._encoded(entries)
        try:
            if version is None:
                await self._submit(Create(path=path, data=data))
            elif entries:
                await self._submit(SetData(path=path, data=data, version=version))
            else:
                await self._submit(Delete(path=path, version=version))
        except (BadVersionError, NodeExistsError, NoNodeError):
            return False
        return True

    async def _notify(self, resource: AclResource) -> None:
        path, data = resource.notice
        await self._submit(Create(path=path, data=data, sequential=True))
        log.debug("Changed the access control list of %s", resource.path)

    async def _submit(self, request: Any) -> Any:
        return await self._session.client.submit_until_connected(request)


def _pieces(resources: list[AclResource]) -> "Iterator[list[AclResource]]":
    for first in range(0, len(resources), RESOURCES_AT_ONCE):
        yield resources[first : first + RESOURCES_AT_ONCE]


def _checked(acl: "Acl") -> "Acl":
    """The entry, if Kafka 3.9 can store it.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    if "/" in acl.resource_name or acl.operation in SINCE_KAFKA_4:
        raise KafkaError(ErrorCode.INVALID_REQUEST, _INVALID)
    return acl


def _named_by(wanted: "AclFilter") -> list[AclResource]:
    """The resources of a filter that can match no others (`matchesAtMostOne`)."""
    name, pattern = wanted.resource_name, wanted.pattern_type
    if not name or "/" in name or wanted.resource_type == AclResourceType.ANY:
        return []
    if pattern == PatternType.MATCH:
        return []
    patterns = ACL_ROOTS if pattern == PatternType.ANY else [PatternType(pattern)]
    return [AclResource(wanted.resource_type, each, name) for each in patterns]
