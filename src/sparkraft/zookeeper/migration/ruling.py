"""A KRaft controller as the controller in ZooKeeper: `/controller`, `/migration`, guarded writes.

    /controller        persistent; brokers resign when it names a KRaft controller, and never
                       compete while it exists
    /controller_epoch  its version guards each write against a later controller
    /migration         its version guards each write against another KRaft controller; its data is
                       the offset of the metadata log up to which ZooKeeper is equal

Each write is one transaction: check both versions, then the write (`retryMigrationRequests
UntilConnected` of Kafka 3.9). A write that a lost connection repeats may meet its own effect, so a
znode that exists already, or no longer, is not an error.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparkraft.zookeeper.controller import store
from sparkraft.zookeeper.controller.steps import ControllerMovedError, Steps, Worked, pieces
from sparkraft.zookeeper.errors import (
    Code,
    MultiError,
    NodeExistsError,
    NoNodeError,
    ZooKeeperError,
    error_of,
)
from sparkraft.zookeeper.migration.writes import Change, Notice, Put, Remove
from sparkraft.zookeeper.requests import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    GetData,
    Multi,
    Operation,
    SetData,
)
from sparkraft.zookeeper.znodes.cluster import (
    CONTROLLER,
    MIGRATION,
    Controller,
    Migration,
    decode_controller,
    decode_migration,
    encode_controller,
    encode_migration,
)
from sparkraft.zookeeper.znodes.json_form import encode_number
from sparkraft.zookeeper.znodes.tree import CONTROLLER_EPOCH

NOTHING_COPIED = Migration(
    metadata_offset=-1, controller=-1, metadata_epoch=-1, controller_epoch=-1
)

_REFUSED = (Code.BAD_VERSION, Code.NO_NODE, Code.NODE_EXISTS)
"""Another controller was elected meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The rule of one KRaft controller in one epoch.

    Attributes:
        node_id: of the controller.
        kraft_epoch: its epoch in the quorum.
        epoch: in ZooKeeper, which requests to brokers contain.
        epoch_version: of /controller_epoch.
        migration: the data of /migration.
        migration_version: of /migration.
    """

    node_id: int
    kraft_epoch: int
    epoch: int
    epoch_version: int
    migration: Migration
    migration_version: int


def recover() -> Steps[tuple[Migration, int]]:
    """Read /migration and its version; create it if no KRaft controller has been here."""
    create = Create(path=MIGRATION, data=encode_migration(NOTHING_COPIED))
    (result,) = yield from store.read([create])
    if isinstance(result, ZooKeeperError) and not isinstance(result, NodeExistsError):
        raise result
    (found,) = yield from store.read([GetData(path=MIGRATION)])
    if isinstance(found, ZooKeeperError):
        raise found
    data, stat = found
    return decode_migration(MIGRATION, data), stat.version


def is_copied() -> Steps[bool]:
    """Whether a KRaft controller has copied the metadata, or has at least taken /controller.

    A controller that ends between the copy and the write of /migration leaves its /controller; an
    operator who rolls a migration back deletes both. (Kafka's next controller gives up in both
    cases.)
    """
    migration, _ = yield from recover()
    if migration.metadata_offset >= 0:
        return True
    (found,) = yield from store.read([GetData(path=CONTROLLER)])
    if isinstance(found, NoNodeError):
        return False
    if isinstance(found, ZooKeeperError):
        raise found
    return decode_controller(CONTROLLER, found[0]).kraft_epoch >= 0


def claim(node_id: int, kraft_epoch: int, now_ms: int) -> Steps[Rule | None]:
    """Take /controller from the present controller; None if another was elected meanwhile.

    Afterwards /migration is written without a check of its version: a controller that ruled before
    may have written it in the meantime (KAFKA-16171).

    Raises:
        ControllerMovedError: a KRaft controller of this epoch or a later one rules.
    """
    epoch = yield from store.read_epoch()
    if epoch is None:
        return None  # no broker has ever been the controller
    (found,) = yield from store.read([GetData(path=CONTROLLER)])
    if isinstance(found, ZooKeeperError) and not isinstance(found, NoNodeError):
        raise found
    operations: list[Operation] = [
        SetData(path=CONTROLLER_EPOCH, data=encode_number(epoch.epoch + 1), version=epoch.version)
    ]
    if not isinstance(found, NoNodeError):
        data, stat = found
        present = decode_controller(CONTROLLER, data)
        if present.kraft_epoch >= kraft_epoch:
            if (present.broker, present.kraft_epoch) != (node_id, kraft_epoch):
                raise ControllerMovedError(
                    f"KRaft controller {present.broker} of epoch {present.kraft_epoch} rules"
                )
            return (yield from _begin(node_id, kraft_epoch, epoch.epoch, epoch.version))
        operations.append(Delete(path=CONTROLLER, version=stat.version))
    mine = Controller(node_id, str(now_ms), kraft_epoch)
    operations.append(Create(path=CONTROLLER, data=encode_controller(mine)))
    (result,) = yield from store.read([Multi(tuple(operations))])
    if isinstance(result, MultiError) and result.code in _REFUSED:
        return None
    if isinstance(result, ZooKeeperError):
        raise result
    return (yield from _begin(node_id, kraft_epoch, epoch.epoch + 1, result[0].version))


def _begin(node_id: int, kraft_epoch: int, epoch: int, epoch_version: int) -> Steps[Rule]:
    migration, _ = yield from recover()
    rule = Rule(
        node_id=node_id,
        kraft_epoch=kraft_epoch,
        epoch=epoch,
        epoch_version=epoch_version,
        migration=migration._replace(controller=node_id, controller_epoch=kraft_epoch),
        migration_version=ANY_VERSION,
    )
    return (yield from _set_migration(rule))


def record_offset(rule: Rule, offset: int, epoch: int) -> Steps[Rule]:
    """Write that ZooKeeper is equal to the metadata log up to `offset`, of `epoch`.

    Raises:
        ControllerMovedError: another controller rules.
    """
    migration = rule.migration._replace(metadata_offset=offset, metadata_epoch=epoch)
    return (yield from _set_migration(replace(rule, migration=migration)))


def _set_migration(rule: Rule) -> Steps[Rule]:
    data = encode_migration(rule.migration)
    check = Check(path=CONTROLLER_EPOCH, version=rule.epoch_version)
    put = SetData(path=MIGRATION, data=data, version=rule.migration_version)
    (result,) = yield from store.read([Multi((check, put))])
    if not isinstance(result, ZooKeeperError):
        return replace(rule, migration_version=result[1].version)
    if not isinstance(result, MultiError) or result.code != Code.BAD_VERSION:
        raise result
    if result.index == 1:
        (found,) = yield from store.read([GetData(path=MIGRATION)])
        if not isinstance(found, ZooKeeperError) and found[0] == data:
            return replace(rule, migration_version=found[1].version)  # the reply was lost
    raise _moved(result)


def _moved(error: MultiError) -> ControllerMovedError:
    path = (CONTROLLER_EPOCH, MIGRATION)[error.index]
    return ControllerMovedError(f"another controller has written {path}")


# ---- guarded writes


def write(rule: Rule, changes: Iterable[Change | None]) -> Steps[int]:
    """Carry out changes in their order; return how many there were.

    Raises:
        ControllerMovedError: another controller rules; nothing more was written.
        ZooKeeperError: a write failed; those before it are done.
    """
    count = 0
    waiting: list[Change] = []
    for change in changes:
        if change is None:
            yield Worked(1)
            continue
        count += 1
        if waiting and waiting[-1].is_removal != change.is_removal:
            yield from _carry_out(rule, waiting)
            waiting = []
        waiting.append(change)
        if sum(len(stage) for each in waiting for stage in each.stages) > PENDING_MAX:
            yield from _carry_out(rule, waiting)
            waiting = []
    yield from _carry_out(rule, waiting)
    return count


PENDING_MAX = 100
"""Writes that are collected before they are carried out together."""


def _carry_out(rule: Rule, changes: Sequence[Change]) -> Steps[None]:
    depth = max((len(change.stages) for change in changes), default=0)
    for at in range(depth):
        stage = [
            each for change in changes if at < len(change.stages) for each in change.stages[at]
        ]
        for piece in pieces(stage):
            yield from _write_piece(rule, piece)
            yield Worked(len(piece))
    for change in changes:
        if change.notice is not None:
            yield from _notify(change.notice)


def _write_piece(rule: Rule, writes: list[Put | Remove]) -> Steps[None]:
    left = list(writes)
    operations = [_first_attempt(each) for each in left]
    results = yield from _guarded(rule, operations)
    missing: list[Put] = []
    present: list[Put] = []
    for each, result in zip(left, results, strict=True):
        if not isinstance(result, ZooKeeperError):
            continue
        if isinstance(each, Put) and isinstance(result, NoNodeError):
            missing.append(each)
        elif isinstance(each, Put) and isinstance(result, NodeExistsError):
            present.append(each)
        elif not (isinstance(each, Remove) and isinstance(result, NoNodeError)):
            raise result
    if missing:
        yield from _create_parents(missing)
        creates = [Create(path=each.path, data=each.data) for each in missing]
        yield from _require(rule, creates)
    if present:
        yield from _require(rule, [SetData(path=each.path, data=each.data) for each in present])


def _first_attempt(write: Put | Remove) -> Operation:
    if isinstance(write, Remove):
        return Delete(path=write.path)
    if write.is_new:
        return Create(path=write.path, data=write.data)
    return SetData(path=write.path, data=write.data)


def _require(rule: Rule, operations: Sequence[Operation]) -> Steps[None]:
    """Repeat the other kind of write once, as Kafka does."""
    results = yield from _guarded(rule, operations)
    for result in results:
        if isinstance(result, ZooKeeperError) and not isinstance(result, NodeExistsError):
            raise result


def _create_parents(missing: list[Put]) -> Steps[None]:
    """Create the znodes above, without data; not guarded, as in Kafka."""
    parents = dict.fromkeys(each.path.rpartition("/")[0] for each in missing)
    for parent in parents:
        names = parent.strip("/").split("/")
        for depth in range(1, len(names) + 1):
            (result,) = yield from store.read([Create(path="/" + "/".join(names[:depth]))])
            if isinstance(result, ZooKeeperError) and not isinstance(result, NodeExistsError):
                raise result


def _guarded(rule: Rule, operations: Sequence[Operation]) -> Steps[list[Any]]:
    checks = (
        Check(path=CONTROLLER_EPOCH, version=rule.epoch_version),
        Check(path=MIGRATION, version=rule.migration_version),
    )
    results = yield from store.read([Multi((*checks, each)) for each in operations])
    return [
        _result(result, operation, len(checks))
        for result, operation in zip(results, operations, strict=True)
    ]


def _result(result: Any, operation: Operation, checks: int) -> Any:
    if not isinstance(result, MultiError):
        return result if isinstance(result, ZooKeeperError) else result[checks]
    if result.index < checks:
        raise _moved(result)
    return error_of(result.code, operation.path)


def _notify(notice: Notice) -> Steps[None]:
    """Let brokers in ZooKeeper mode read what has changed; not guarded, as in Kafka."""
    create = Create(path=notice.path, data=notice.data, sequential=True)
    (result,) = yield from store.read([create])
    if isinstance(result, NoNodeError):
        yield from _create_parents([Put(notice.path, b"")])
        (result,) = yield from store.read([create])
    if isinstance(result, ZooKeeperError):
        raise result
