"""Reads and guarded writes of znodes (Kafka's KafkaZkClient), as steps of a decision.

A guarded write is one transaction: check the version of /controller_epoch, then the write. Writes
are pipelined, one transaction per znode, as Kafka does it. If the check fails, another controller
was elected: `ControllerMovedError`.

Not guarded, as in Kafka: /feature, /latest_producer_id_block, the broker's own znode.

A topic, state, topic config, notification or order in `/admin` whose data is malformed is treated
as if it did not exist, and reported. Kafka does so with data that is not JSON; a field that is
missing fails its event, and each failover. A malformed registration, /feature, /controller or
/controller_epoch does that here as well.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.zookeeper.controller import znodes
from sparkraft.zookeeper.controller.context import ControllerContext
from sparkraft.zookeeper.controller.steps import (
    Ask,
    ControllerMovedError,
    Steps,
    Worked,
    pieces,
)
from sparkraft.zookeeper.controller.values import (
    Broker,
    LeaderAndIsr,
    Leadership,
    ReplicaAssignment,
)
from sparkraft.zookeeper.controller.znodes import Epoch, Registration, Topic
from sparkraft.zookeeper.errors import (
    BadVersionError,
    Code,
    MultiError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
    error_of,
)
from sparkraft.zookeeper.requests import (
    Check,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    MultiRead,
    Operation,
    Request,
    SetData,
    Stat,
)
from sparkraft.zookeeper.znodes.json_form import ZnodeError

LONG_MAX = 2**63 - 1

OnMalformed = Callable[[ZnodeError], None]
"""Called with each malformed znode that is left out."""

FoundState = Leadership | ZooKeeperError | ZnodeError | None
"""A partition's state, or why it could not be read; None if it does not exist."""

T = TypeVar("T")


def read(requests: Sequence[Request]) -> Steps[list[Any]]:
    """Send requests; return a result or a `ZooKeeperError` for each.

    Raises:
        SessionExpiredError: the session has ended.
    """
    if not requests:
        return []
    results: list[Any] = yield Ask(tuple(requests))
    _check_session(results)
    return results


def _check_session(results: Iterable[Any]) -> None:
    for result in results:
        ended = isinstance(result, SessionExpiredError)
        if ended or (isinstance(result, BaseException) and not isinstance(result, ZooKeeperError)):
            raise result


def write(operations: Sequence[Operation], epoch_version: int) -> Steps[list[Any]]:
    """Apply guarded writes; return a result or a `ZooKeeperError` for each.

    Raises:
        ControllerMovedError: the epoch has another version; nothing more was written.
    """
    check = Check(path=znodes.CONTROLLER_EPOCH, version=epoch_version)
    requests: list[Multi] = []
    for some in pieces(operations):
        requests += [Multi((check, operation)) for operation in some]
        yield Worked(len(some))
    results = yield from read(requests)
    found: list[Any] = []
    for piece in pieces(zip(results, operations, strict=True)):
        found += [_result_of_guarded(result, operation) for result, operation in piece]
        yield Worked(len(piece))
    return found


def _result_of_guarded(result: Any, operation: Operation) -> Any:
    if not isinstance(result, MultiError):
        return result if isinstance(result, ZooKeeperError) else result[1]
    if result.index == 0 and result.code == Code.BAD_VERSION:
        raise ControllerMovedError("the version of /controller_epoch has changed")
    return error_of(result.code, operation.path)


def read_children(path: str, *, watch: bool) -> Steps[list[str]]:
    """Return the names below `path` in order; none if it does not exist."""
    (result,) = yield from read([GetChildren(path=path, watch=watch)])
    if isinstance(result, NoNodeError):
        return []
    if isinstance(result, ZooKeeperError):
        raise result
    return sorted(result[0])


def read_data(paths: Sequence[str], *, watch: bool) -> Steps[list[tuple[bytes, Stat] | None]]:
    """Return data and state of each znode; None for one that does not exist."""
    results = yield from read([GetData(path=path, watch=watch) for path in paths])
    return [_data_or_none(result) for result in results]


def _read_sound(
    paths: Sequence[str],
    decode: Callable[[str, bytes], T],
    on_malformed: OnMalformed,
    *,
    watch: bool,
) -> Steps[dict[str, T]]:
    """Return the decoded data of znodes; those that do not exist or are malformed are left out."""
    found = yield from read_data(paths, watch=watch)
    sound: dict[str, T] = {}
    for path, data in zip(paths, found, strict=True):
        if data is not None:
            try:
                sound[path] = decode(path, data[0])
            except ZnodeError as error:
                on_malformed(error)
    return sound


def _data_or_none(result: Any) -> tuple[bytes, Stat] | None:
    if isinstance(result, NoNodeError):
        return None
    if isinstance(result, ZooKeeperError):
        raise result
    data: tuple[bytes, Stat] = result
    return data


# The controller, brokers, topics and configs


def read_epoch() -> Steps[Epoch | None]:
    """Read the controller epoch; None if there was never a controller."""
    (found,) = yield from read_data([znodes.CONTROLLER_EPOCH], watch=False)
    return None if found is None else znodes.decode_epoch(*found)


def read_controller() -> Steps[Registration | None]:
    """Read who is the controller; None without the znode. A watch fires when it changes."""
    (found,) = yield from read_data([znodes.CONTROLLER], watch=True)
    return None if found is None else znodes.decode_controller(*found)


def is_registered(broker: int) -> Steps[bool]:
    """Whether a broker is registered now."""
    (result,) = yield from read([Exists(path=znodes.broker_path(broker))])
    if isinstance(result, ZooKeeperError) and not isinstance(result, NoNodeError):
        raise result
    return not isinstance(result, NoNodeError)


def read_brokers(*, watch: bool) -> Steps[dict[int, Broker]]:
    """Read all registered brokers; one that disappears meanwhile is left out."""
    names = yield from read_children(znodes.BROKER_IDS, watch=watch)
    ids = sorted(_number(znodes.BROKER_IDS, name) for name in names)
    found = yield from read_data([znodes.broker_path(broker) for broker in ids], watch=watch)
    return {
        broker: znodes.decode_broker(broker, *data)
        for broker, data in zip(ids, found, strict=True)
        if data is not None
    }


def _number(parent: str, name: str) -> int:
    """Return the number that a znode has as its name.

    Raises:
        ZnodeError: it has another name.
    """
    if not (name.isascii() and name.isdigit()):
        raise ZnodeError(f"{parent}/{name}", "expected a number as its name")
    return int(name)


def read_broker(broker: int) -> Steps[Broker | None]:
    """Read one registered broker, with a watch."""
    (found,) = yield from read_data([znodes.broker_path(broker)], watch=True)
    return None if found is None else znodes.decode_broker(broker, *found)


def read_topics(topics: Sequence[str], on_malformed: OnMalformed) -> Steps[dict[str, Topic]]:
    """Read ids and assignments of topics, with watches; one that disappears is left out."""
    found = yield from read_data([znodes.topic_path(topic) for topic in topics], watch=True)
    read: dict[str, Topic] = {}
    for topic, data in zip(topics, found, strict=True):
        if data is None:
            continue
        try:
            read[topic] = znodes.decode_topic(topic, data[0])
        except ZnodeError as error:
            on_malformed(error)
        else:
            yield Worked(len(read[topic].assignments))
    return read


def read_topic_configs(
    topics: Sequence[str], on_malformed: OnMalformed
) -> Steps[dict[str, dict[str, str]]]:
    """Read the configs of topics; a topic without a config znode has none."""
    paths = [znodes.topic_config_path(topic) for topic in topics]
    found = yield from _read_sound(paths, znodes.decode_config, on_malformed, watch=False)
    return {
        topic: found[path] if path in found else {}  # noqa: SIM401 (fewer calls in one piece)
        for topic, path in zip(topics, paths, strict=True)
    }


# States of partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatedStates:
    """Results of `update_states`.

    Attributes:
        finished: the written states with their new partition epochs, or the errors.
        to_retry: partitions with another version: their leader or a retry has written them.
    """

    finished: dict[TopicPartition, LeaderAndIsr | ZooKeeperError]
    to_retry: list[TopicPartition]


def read_states(
    partitions: Sequence[TopicPartition],
) -> Steps[dict[TopicPartition, FoundState]]:
    """Read state znodes, many in one request; None for a partition without one."""
    requests: list[MultiRead] = []
    for some in pieces(partitions):
        requests.append(MultiRead(tuple(GetData(path=znodes.state_path(*at)) for at in some)))
        yield Worked(len(some))
    results = yield from read(requests)
    found: dict[TopicPartition, FoundState] = {}
    for request, result, piece in zip(requests, results, pieces(partitions), strict=True):
        if isinstance(result, ZooKeeperError):
            raise result
        _check_session(result)
        for at, each, state in zip(piece, request.reads, result, strict=True):
            found[at] = _state_of(each.path, state)
        yield Worked(len(piece))
    return found


def _state_of(path: str, result: Any) -> FoundState:
    if isinstance(result, NoNodeError):
        return None
    if isinstance(result, ZooKeeperError):
        return result
    try:
        return znodes.decode_state(path, *result)
    except ZnodeError as error:
        return error


def read_watched_state(at: TopicPartition) -> Steps[FoundState]:
    """Read a state znode with a watch."""
    path = znodes.state_path(*at)
    (found,) = yield from read_data([path], watch=True)
    return None if found is None else _state_of(path, found)


def update_states(
    states: Mapping[TopicPartition, LeaderAndIsr], context: ControllerContext
) -> Steps[UpdatedStates]:
    """Write states if the znodes still have the versions in `states`."""
    operations: list[SetData] = []
    for piece in pieces(states.items()):
        operations += [
            SetData(
                path=znodes.state_path(*at),
                data=znodes.encode_state(Leadership(state, context.epoch)),
                version=state.partition_epoch,
            )
            for at, state in piece
        ]
        yield Worked(len(piece))
    results = yield from write(operations, context.epoch_version)
    finished: dict[TopicPartition, LeaderAndIsr | ZooKeeperError] = {}
    to_retry = []
    for written in pieces(zip(states.items(), results, strict=True)):
        for (at, state), result in written:
            if isinstance(result, BadVersionError):
                to_retry.append(at)
            elif isinstance(result, ZooKeeperError):
                finished[at] = result
            else:
                finished[at] = state._replace(partition_epoch=result.version)
        yield Worked(len(written))
    return UpdatedStates(finished=finished, to_retry=to_retry)


def write_isrs(
    wanted: Mapping[TopicPartition, LeaderAndIsr],
) -> Steps[dict[TopicPartition, LeaderAndIsr]]:
    """Write states as the leader of their partitions; return those that were written.

    Not guarded by the epoch, as in Kafka (`ReplicationUtils.updateLeaderAndIsr`): the znode's
    version is enough. A state keeps the epoch of the controller that chose the leader. One that has
    the wanted leader, epoch and ISR already was written by an attempt whose reply was lost.
    """
    present = yield from _leaderships(list(wanted))
    due = {
        at: known
        for at, known in present.items()
        if known.state.partition_epoch == wanted[at].partition_epoch
    }
    operations = [
        SetData(
            path=znodes.state_path(*at),
            data=znodes.encode_state(known._replace(state=wanted[at])),
            version=wanted[at].partition_epoch,
        )
        for at, known in due.items()
    ]
    results = yield from read(operations)
    written = {
        at: wanted[at]._replace(partition_epoch=result.version)
        for at, result in zip(due, results, strict=True)
        if not isinstance(result, ZooKeeperError)
    }
    missed = [at for at in present if at not in written]
    for at, known in (yield from _leaderships(missed)).items():
        if known.state._replace(partition_epoch=wanted[at].partition_epoch) == wanted[at]:
            written[at] = known.state
    return written


def _leaderships(partitions: Sequence[TopicPartition]) -> Steps[dict[TopicPartition, Leadership]]:
    """Read states; leave out those that cannot be read."""
    found = yield from read_states(partitions)
    return {at: each for at, each in found.items() if isinstance(each, Leadership)}


def notify_isr_changes(partitions: Sequence[TopicPartition]) -> Steps[None]:
    """Notify the controller of states that their leader has written."""
    data = znodes.encode_isr_change(partitions)
    create = Create(path=f"{znodes.ISR_CHANGES}/isr_change_", data=data, sequential=True)
    (result,) = yield from read([create])
    if isinstance(result, ZooKeeperError):
        raise result


def create_states(
    states: Mapping[TopicPartition, Leadership], epoch_version: int
) -> Steps[dict[TopicPartition, ZooKeeperError | None]]:
    """Create the znodes of partitions and their states; return an error or None for each.

    The parents may exist: they remain if a controller failed in between.
    """
    topics = dict.fromkeys(topic for topic, _ in states)
    parents = [Create(path=znodes.partitions_path(topic)) for topic in topics]
    yield from write(parents, epoch_version)
    yield from write([Create(path=znodes.partition_path(*at)) for at in states], epoch_version)
    operations: list[Create] = []
    for piece in pieces(states.items()):
        operations += [
            Create(path=znodes.state_path(*at), data=znodes.encode_state(leadership))
            for at, leadership in piece
        ]
        yield Worked(len(piece))
    results = yield from write(operations, epoch_version)
    return {
        at: result if isinstance(result, ZooKeeperError) else None
        for at, result in zip(states, results, strict=True)
    }


def delete_children(path: str, epoch_version: int) -> Steps[int]:
    """Delete all children of a notification znode; return their number."""
    names = yield from read_children(path, watch=True)
    yield from write([Delete(path=f"{path}/{name}") for name in names], epoch_version)
    return len(names)


# Assignments, reassignments and deletions


def write_topic(
    topic: str,
    topic_id: Uuid | None,
    assignments: Mapping[int, ReplicaAssignment],
    epoch_version: int,
) -> Steps[ZooKeeperError | None]:
    """Write the assignments of a topic; return the error, if any."""
    data = znodes.encode_topic(znodes.Topic(topic_id, dict(assignments)))
    operation = SetData(path=znodes.topic_path(topic), data=data)
    (result,) = yield from write([operation], epoch_version)
    return result if isinstance(result, ZooKeeperError) else None


def delete_topic(topic: str, epoch_version: int) -> Steps[None]:
    """Delete the znodes of a topic: bottom-up, its configs, and the request to delete it last."""
    yield from _delete_below(znodes.topic_path(topic), epoch_version)
    yield from write([Delete(path=znodes.topic_config_path(topic))], epoch_version)
    yield from write([Delete(path=f"{znodes.DELETE_TOPICS}/{topic}")], epoch_version)


def _delete_below(path: str, epoch_version: int) -> Steps[None]:
    for name in (yield from read_children(path, watch=False)):
        yield from _delete_below(f"{path}/{name}", epoch_version)
    (result,) = yield from write([Delete(path=path)], epoch_version)
    if isinstance(result, ZooKeeperError) and not isinstance(result, NoNodeError):
        raise result


def read_reassignments(
    on_malformed: OnMalformed,
) -> Steps[dict[TopicPartition, tuple[int, ...]] | None]:
    """Read the targets in /admin/reassign_partitions; None without it. A watch fires later."""
    path = znodes.REASSIGN_PARTITIONS
    yield from read([Exists(path=path, watch=True)])
    found = yield from _read_sound(
        [path], lambda _, data: znodes.decode_reassignments(data), on_malformed, watch=True
    )
    return found.get(path)


def write_reassignments(
    targets: Mapping[TopicPartition, tuple[int, ...]], epoch_version: int
) -> Steps[None]:
    """Replace the targets in /admin/reassign_partitions; delete it without targets."""
    path = znodes.REASSIGN_PARTITIONS
    operation: Operation = Delete(path=path)
    if targets:
        operation = SetData(path=path, data=znodes.encode_reassignments(targets))
    yield from write([operation], epoch_version)
    yield from read([Exists(path=path, watch=True)])


def remove_reassignments(
    is_done: Callable[[TopicPartition, tuple[int, ...]], bool], epoch_version: int
) -> Steps[None]:
    """Take partitions out of /admin/reassign_partitions; delete it when it is empty."""
    wanted = yield from read_reassignments(lambda _: None)  # reported when it was created
    if wanted is not None:
        left = {at: target for at, target in wanted.items() if not is_done(at, target)}
        yield from write_reassignments(left, epoch_version)


def read_preferred_elections(on_malformed: OnMalformed) -> Steps[list[TopicPartition] | None]:
    """Read /admin/preferred_replica_election; None without it. A watch fires later.

    Malformed data has no partitions: it is deleted as after an election.
    """
    path = znodes.PREFERRED_ELECTION
    yield from read([Exists(path=path, watch=True)])
    (found,) = yield from read_data([path], watch=True)
    if found is None:
        return None
    try:
        return znodes.decode_preferred_elections(found[0])
    except ZnodeError as error:
        on_malformed(error)
        return []


def delete_preferred_elections(epoch_version: int) -> Steps[None]:
    """Delete /admin/preferred_replica_election, and watch for the next one."""
    yield from write([Delete(path=znodes.PREFERRED_ELECTION)], epoch_version)
    yield from read([Exists(path=znodes.PREFERRED_ELECTION, watch=True)])


def read_partitions(topic: str) -> Steps[set[int]]:
    """Read which partitions of a topic have a znode."""
    path = znodes.partitions_path(topic)
    names = yield from read_children(path, watch=False)
    return {_number(path, name) for name in names}


def delete_deletions(topics: Sequence[str], epoch_version: int) -> Steps[None]:
    """Delete requests to delete topics."""
    paths = [f"{znodes.DELETE_TOPICS}/{topic}" for topic in topics]
    yield from write([Delete(path=path) for path in paths], epoch_version)


# Notifications


def read_log_dir_events(on_malformed: OnMalformed) -> Steps[tuple[list[str], set[int]]]:
    """Read the notifications of failed log directories: their names, and the brokers."""
    names = yield from read_children(znodes.LOG_DIR_EVENTS, watch=True)
    paths = [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names]
    found = yield from _read_sound(paths, znodes.decode_log_dir_event, on_malformed, watch=False)
    return names, set(found.values())


def read_isr_changes(
    on_malformed: OnMalformed,
) -> Steps[tuple[list[str], list[TopicPartition]]]:
    """Read the notifications of ISR changes: their names, and the partitions."""
    names = yield from read_children(znodes.ISR_CHANGES, watch=True)
    paths = [f"{znodes.ISR_CHANGES}/{name}" for name in names]
    found = yield from _read_sound(paths, znodes.decode_isr_change, on_malformed, watch=False)
    return names, list(dict.fromkeys(at for changed in found.values() for at in changed))


def delete_notifications(path: str, names: Sequence[str], epoch_version: int) -> Steps[None]:
    """Delete notifications that were handled."""
    yield from write([Delete(path=f"{path}/{name}") for name in names], epoch_version)


# Features


def set_up_features(version: int, *, enabled: bool) -> Steps[bool]:
    """Enable or disable /feature in this version; return whether it was written.

    Not guarded by the epoch, as in Kafka. Features stay if they were enabled (KIP-584); brokers of
    Kafka 3.9 support none in ZooKeeper mode, so there are none to begin with.
    """
    path = znodes.FEATURE
    (found,) = yield from read_data([path], watch=False)
    before = None if found is None else znodes.decode_features(found[0])
    keeps = enabled and before is not None and before.enabled
    levels = before.levels if keeps and before is not None else {}
    wanted = znodes.Features(version, enabled=enabled, levels=levels)
    if wanted == before:
        return False
    data = znodes.encode_features(wanted)
    operation = Create(path=path, data=data) if found is None else SetData(path=path, data=data)
    (result,) = yield from read([operation])
    if isinstance(result, ZooKeeperError) and not isinstance(result, NodeExistsError):
        raise result
    return True


# Producer ids

PRODUCER_IDS_PER_BLOCK = 1000


def allocate_producer_ids(broker: int) -> Steps[int]:
    """Allocate a block of producer ids to a broker; return its first id.

    Not guarded by the epoch, as in Kafka: the version of the znode is enough.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR if all are used.
    """
    while True:
        (found,) = yield from read_data([znodes.PRODUCER_IDS], watch=False)
        version = -1 if found is None else found[1].version
        first = 0 if found is None else znodes.next_producer_id(found[0])
        last = first + PRODUCER_IDS_PER_BLOCK - 1
        if last > LONG_MAX:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "no producer ids are left")
        data = znodes.encode_producer_ids(broker, first, last)
        write_block = SetData(path=znodes.PRODUCER_IDS, data=data, version=version)
        (result,) = yield from read([write_block])
        if not isinstance(result, ZooKeeperError):
            return first
        if not isinstance(result, BadVersionError):
            raise result
