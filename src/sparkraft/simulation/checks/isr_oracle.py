"""Observed actions of leaders and controllers, to compare with their journals.

    a leader reads a follower's fetch   the follower's log end offset, and when it last caught up
    a leader requests an ISR change     the request, and the lag of each follower at that time
    the controller accepts it           the entry that the leader's journal must have
    a controller fences a broker        missing heartbeats, a refused connection or a request

A follower's lag time follows from its fetches by Kafka's rule (KIP-16, `kafka.cluster.Replica`): it
was caught up at the time of a fetch from the leader's log end offset, or from the leader's log end
offset at the previous fetch.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from sparkraft.controller.controller import Controller
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.metadata_records import BrokerRegistrationChangeRecord
from sparkraft.server.api.fetch_work import FetchWork
from sparkraft.server.broker.alter_partition import AlterPartitionQueue
from sparkraft.server.broker.isr_journal import JOURNAL_MAX
from sparkraft.server.broker.partition import HostedPartition
from sparkraft.simulation.checks.metadata_oracle import Where
from sparkraft.simulation.checks.probe import Probe, current_machine

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine


class Behind(NamedTuple):
    """A follower's lag; `behind_ms` is None if the follower was never caught up."""

    log_end_offset: int
    leader_end: int
    behind_ms: int | None


class RequestedIsrChange(NamedTuple):
    """An ISR change that a leader requested, and the lag of each follower at that time."""

    pending: Any
    isr: frozenset[int]
    behind: dict[int, Behind]

    @property
    def behind_of_leaving(self) -> dict[int, Behind]:
        """Lag of the replicas that the leader removes; a reassignment may remove others."""
        return {replica: b for replica, b in self.behind.items() if replica not in self.isr}


class ConfirmedIsrChange(NamedTuple):
    """An ISR change that the controller has confirmed to the leader."""

    where: Where
    topic: str
    at_ms: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    behind: dict[int, Behind]
    slow_ms: int
    """The leader's `replica.lag.time.max.ms`."""


class Fencing(NamedTuple):
    """Why a controller fenced a broker.

    Attributes:
        pattern: regular expression that the journaled cause must match.
        silent_ms: time since the broker's last heartbeat; None if that was not the reason or this
            controller received no heartbeat.
    """

    pattern: str
    silent_ms: int | None


class _Led:
    """One leadership: followers' fetches in this epoch, and their latest offset in any epoch."""

    __slots__ = ("ends", "epoch", "fetches")

    def __init__(self) -> None:
        self.epoch = -1
        self.fetches: dict[int, list[tuple[int, int, int]]] = {}
        """Replica → fetches as (time in ms, fetch offset, leader's log end offset)."""
        self.ends: dict[int, int] = {}

    def on_metadata(self, partition: Any, local_id: int, end: int, now_ms: int) -> None:
        """Apply a metadata change. In-sync replicas count as caught up when an epoch begins."""
        began, self.epoch = partition.leader_epoch > self.epoch, partition.leader_epoch
        known = self.fetches
        others = [replica for replica in partition.replicas if replica != local_id]
        self.ends = {r: self.ends[r] for r in others if r in self.ends}
        self.fetches = {r: known.get(r, []) for r in others}
        if began:
            at_once = (now_ms, end, end)
            self.fetches = {r: [at_once] if r in partition.isr else [] for r in others}

    def behind(self, replica: int, end: int, now_ms: int) -> Behind:
        """Return the follower's lag behind the leader's log end offset `end`."""
        last_ms = last_end = None
        whole_ms: int | None = None
        for at_ms, offset, leader_end in self.fetches.get(replica, ()):
            if offset >= leader_end:
                whole_ms = at_ms
            elif last_ms is not None and last_end is not None and offset >= last_end:
                whole_ms = max(last_ms, whole_ms or last_ms)
            last_ms, last_end = at_ms, leader_end
        since = None if whole_ms is None else now_ms - whole_ms
        return Behind(self.ends.get(replica, -1), end, since)


class IsrOracle:
    """See the module docstring.

    Attributes:
        requested: requested changes by partition, leader epoch and previous partition epoch.
        confirmed: confirmed changes by machine and incarnation, newest last.
        fencings: by controller epoch and broker, in order of decision.
    """

    def __init__(self) -> None:
        self.requested: dict[tuple[Where, int, int], RequestedIsrChange] = {}
        self.confirmed: dict[tuple[str, int], deque[ConfirmedIsrChange]] = {}
        self.fencings: dict[tuple[int, int], list[Fencing]] = {}
        self._led: dict[Any, _Led] = {}
        self._heartbeat_ms: dict[tuple[Any, int, int], int] = {}

    # ---- leaders

    def on_metadata(self, machine: "Machine", hosted: Any, partition: Any) -> None:
        """A replica has applied the partition's state from the metadata image."""
        leading = hosted.leading
        if leading is None or leading.partition_epoch > partition.partition_epoch:
            return  # not the leader, or already ahead of the image through AlterPartition
        led = self._led.setdefault(leading, _Led())
        end, now_ms = hosted.log.log_end_offset, hosted.host.clock.mono_ms()
        led.on_metadata(partition, machine.id, end, now_ms)

    def on_fetch(self, fetch: Any, found: list[Any]) -> None:
        """A leader read a follower's fetch; errors and diverging epochs confirm no offset."""
        void = {
            id(asked) for asked, data in found if data.error_code or data.diverging_epoch.epoch >= 0
        }
        manager = fetch.broker.replica_manager
        now_ms, replica = manager.clock.mono_ms(), fetch.replica_id
        for asked in fetch.asked.values():
            hosted = None if id(asked) in void else manager.hosted(asked.topic, asked.index)
            led = None if hosted is None else self._led.get(hosted.leading)
            if hosted is not None and led is not None and replica in led.fetches:
                offset = asked.fetch_offset
                led.fetches[replica].append((now_ms, offset, hosted.log.log_end_offset))
                led.ends[replica] = offset

    def on_submit(self, hosted: Any, pending: Any) -> None:
        """A leader requests an ISR change, possibly as a retry."""
        where = (hosted.topic_id, hosted.index)
        key = (where, pending.leader_epoch, pending.partition_epoch)
        known = self.requested.get(key)
        if known is not None and known.pending is pending:
            return
        led = self._led.get(hosted.leading, _Led())
        end, now_ms = hosted.log.log_end_offset, hosted.host.clock.mono_ms()
        self.requested[key] = RequestedIsrChange(
            pending,
            frozenset(replica for replica, _ in pending.new_isr),
            {replica: led.behind(replica, end, now_ms) for replica in led.fetches},
        )

    def on_response(self, machine: "Machine", hosted: Any, pending: Any, part: Any) -> None:
        """A leader received the controller's response."""
        if part.error_code or hosted.leading is None:
            return
        where = (hosted.topic_id, hosted.index)
        requested = self.requested.get((where, pending.leader_epoch, pending.partition_epoch))
        kept = self.confirmed.setdefault((machine.name, machine.life), deque(maxlen=JOURNAL_MAX))
        kept.append(
            ConfirmedIsrChange(
                where,
                hosted.topic,
                hosted.host.clock.wall_ms(),
                part.leader_epoch,
                part.partition_epoch,
                tuple(part.isr),
                {} if requested is None else requested.behind_of_leaving,
                hosted.host.lag_ms_max,
            )
        )

    # ---- controllers

    def on_heartbeat(self, core: Any, request: Any, now_ms: int) -> None:
        """A controller processed a broker's heartbeat."""
        self._heartbeat_ms[core, request.broker_id, request.broker_epoch] = now_ms

    def silent_ms(self, core: Any, broker_id: int, now_ms: int) -> int | None:
        """Time since the registered incarnation's last heartbeat; None if `core` received none."""
        known = core.latest.brokers.get(broker_id)
        last_ms = None if known is None else self._heartbeat_ms.get((core, broker_id, known.epoch))
        return None if last_ms is None else now_ms - last_ms

    def on_decided(self, machine: "Machine", core: Any, outcome: Any, how: str, now: Any) -> None:
        """A controller made a decision that may fence a broker; `now` if for missing heartbeats."""
        for record, _ in () if outcome is None else outcome.records:
            if not isinstance(record, BrokerRegistrationChangeRecord) or record.fenced <= 0:
                continue
            last_ms = self._heartbeat_ms.get((core, record.broker_id, record.broker_epoch))
            silent = None if last_ms is None or now is None else now - last_ms
            key = (_epoch_of(machine), record.broker_id)
            pattern = how.format(record.broker_id)
            self.fencings.setdefault(key, []).append(Fencing(pattern, silent))


def _epoch_of(machine: "Machine") -> int:
    """Return the epoch of the machine's active controller; -1 if it is not active."""
    services = None if machine.node is None else machine.node.controller_services
    epoch = None if services is None else services.controller._epoch  # noqa: SLF001 (looks inside)
    return -1 if epoch is None else epoch


ON_REQUEST = "broker {} (asked to be fenced|has shut down)"
ON_SILENCE = r"broker {} sent no heartbeat for (\d+) ms"
ON_REFUSAL = "broker {}'s connection closed and its listener refuses connections"


@contextmanager
def listening(probe: Probe, oracle: IsrOracle) -> Iterator[None]:
    """Record the actions of leaders and controllers within this context."""

    def here() -> "Machine | None":
        return current_machine(probe)

    with ExitStack() as stack:
        for owner, name, listen in (
            (FetchWork, "read", _read),
            (HostedPartition, "apply", _apply),
            (AlterPartitionQueue, "submit", _submit),
            (AlterPartitionQueue, "_on_partition_response", _take),
            (Controller, "decide", _heartbeat),
            (Controller, "fence_one_stale_broker", _stale),
            (Controller, "fence_refused_broker", _refused),
        ):
            observed = wraps(getattr(owner, name))(listen(getattr(owner, name), oracle, here))
            stack.enter_context(patch.object(owner, name, observed))
        yield


Here = Callable[[], "Machine | None"]


def _read(original: Any, oracle: IsrOracle, _: Here) -> Any:
    def read(self: Any, *, parked: bool = False) -> Any:
        result = original(self, parked=parked)
        if self.replica and not parked:
            oracle.on_fetch(self, result[0])
        return result

    return read


def _apply(original: Any, oracle: IsrOracle, here: Here) -> Any:
    def apply(self: Any, partition: Any, *, local_id: int) -> Any:
        changed = original(self, partition, local_id=local_id)
        machine = here()
        if machine is not None:
            oracle.on_metadata(machine, self, partition)
        return changed

    return apply


def _submit(original: Any, oracle: IsrOracle, _: Here) -> Any:
    def submit(self: Any, hosted: Any, pending: Any) -> None:
        oracle.on_submit(hosted, pending)
        original(self, hosted, pending)

    return submit


def _take(original: Any, oracle: IsrOracle, here: Here) -> Any:
    def take(self: Any, hosted: Any, pending: Any, part: Any) -> Any:
        machine = here()
        if machine is not None:
            oracle.on_response(machine, hosted, pending, part)
        return original(self, hosted, pending, part)

    return take


def _heartbeat(original: Any, oracle: IsrOracle, here: Here) -> Any:
    def decide(self: Any, key: ApiKey, call: Any) -> Any:
        decision = yield from original(self, key, call)
        machine = here()
        if key is ApiKey.BROKER_HEARTBEAT and machine is not None:
            oracle.on_heartbeat(self, call.request, call.now)
            oracle.on_decided(machine, self, decision, ON_REQUEST, None)
        return decision

    return decide


def _stale(original: Any, oracle: IsrOracle, here: Here) -> Any:
    def stale(self: Any, now: Any) -> Any:
        outcome = yield from original(self, now)
        machine = here()
        if machine is not None:
            oracle.on_decided(machine, self, outcome, ON_SILENCE, now)
        return outcome

    return stale


def _refused(original: Any, oracle: IsrOracle, here: Here) -> Any:
    def refused(self: Any, broker_id: int) -> Any:
        outcome = yield from original(self, broker_id)
        machine = here()
        if machine is not None:
            oracle.on_decided(machine, self, outcome, ON_REFUSAL, None)
        return outcome

    return refused
