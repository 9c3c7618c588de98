"""What leaders and controllers were seen to do, which their journals are held against.

    a fetch is read at a leader        how far its follower is, and when it last had everything
    a leader asks for another ISR      who it is, and how far behind each follower is just then
    the controller agrees              what the leader's journal must tell of it
    a controller fences a broker       for want of heartbeats, on a refused connection, on request

How long a follower lacks something is had from its fetches by Kafka's rule (KIP-16, `Replica` of
`kafka.cluster`): it had everything at the time of a fetch that began where the leader's log ended
at that fetch, or where it had ended at the fetch before.
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
from sparkraft.server.api.k01_fetch import _Fetch
from sparkraft.server.broker.alter_partition import AlterPartitionQueue
from sparkraft.server.broker.isr_journal import JOURNAL_MAX
from sparkraft.server.broker.partition import HostedPartition
from sparkraft.simulation.checks.metadata_oracle import Where
from sparkraft.simulation.world.loop import CURRENT

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine
    from sparkraft.simulation.world.nodes import NodesWorld


class Behind(NamedTuple):
    """How far and how long a follower lacks records; None where it never had everything."""

    log_end_offset: int
    leader_end: int
    behind_ms: int | None


class Asked(NamedTuple):
    """A change of the ISR that a leader asked for, by epochs of the leader and the partition."""

    pending: Any
    isr: frozenset[int]
    behind: dict[int, Behind]

    @property
    def behind_of_leaving(self) -> dict[int, Behind]:
        """Of those that the leader wants to leave; a reassignment may take out others."""
        return {replica: b for replica, b in self.behind.items() if replica not in self.isr}


class Agreed(NamedTuple):
    """A change of the ISR that the controller has answered to its leader."""

    where: Where
    topic: str
    at_ms: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    behind: dict[int, Behind]
    slow_ms: int
    """How long a follower may lack records at this leader."""


class Fencing(NamedTuple):
    """Why a controller fenced a broker.

    Attributes:
        said: a pattern of what it may say of it.
        silent_ms: since the broker's last heartbeat, where that counts and this controller had one.
    """

    said: str
    silent_ms: int | None


class _Led:
    """One leadership: what its followers fetched in this epoch, and up to where in any."""

    __slots__ = ("ends", "epoch", "fetches")

    def __init__(self) -> None:
        self.epoch = -1
        self.fetches: dict[int, list[tuple[int, int, int]]] = {}
        """By replica: when, from which offset, and where the leader's log ended then."""
        self.ends: dict[int, int] = {}

    def on_metadata(self, partition: Any, local_id: int, end: int, now_ms: int) -> None:
        """The image says so; those in sync count as having everything when an epoch begins."""
        began, self.epoch = partition.leader_epoch > self.epoch, partition.leader_epoch
        known = self.fetches
        others = [replica for replica in partition.replicas if replica != local_id]
        self.ends = {r: self.ends[r] for r in others if r in self.ends}
        self.fetches = {r: known.get(r, []) for r in others}
        if began:
            at_once = (now_ms, end, end)
            self.fetches = {r: [at_once] if r in partition.isr else [] for r in others}

    def behind(self, replica: int, end: int, now_ms: int) -> Behind:
        """How far behind `end` it is, by what it fetched."""
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
        asked: by partition, leader epoch and partition epoch before the change.
        agreed: by machine and its life, the newest last.
        fencings: by controller epoch and broker, in the order of their decision.
    """

    def __init__(self) -> None:
        self.asked: dict[tuple[Where, int, int], Asked] = {}
        self.agreed: dict[tuple[str, int], deque[Agreed]] = {}
        self.fencings: dict[tuple[int, int], list[Fencing]] = {}
        self._led: dict[Any, _Led] = {}
        self._heard_ms: dict[tuple[Any, int, int], int] = {}

    # ---- leaders

    def on_metadata(self, machine: "Machine", hosted: Any, partition: Any) -> None:
        """A partition has taken over what the image says."""
        leading = hosted.leading
        if leading is None or leading.partition_epoch > partition.partition_epoch:
            return  # not led, or the controller has told it something newer
        led = self._led.setdefault(leading, _Led())
        end, now_ms = hosted.log.log_end_offset, hosted.host.clock.mono_ms()
        led.on_metadata(partition, machine.id, end, now_ms)

    def on_fetch(self, fetch: Any, found: list[Any]) -> None:
        """A follower's fetch was read; what is refused or diverges tells nothing of its log."""
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
        """A leader asks for another ISR, perhaps once more."""
        where = (hosted.topic_id, hosted.index)
        key = (where, pending.leader_epoch, pending.partition_epoch)
        known = self.asked.get(key)
        if known is not None and known.pending is pending:
            return
        led = self._led.get(hosted.leading, _Led())
        end, now_ms = hosted.log.log_end_offset, hosted.host.clock.mono_ms()
        self.asked[key] = Asked(
            pending,
            frozenset(replica for replica, _ in pending.new_isr),
            {replica: led.behind(replica, end, now_ms) for replica in led.fetches},
        )

    def on_answer(self, machine: "Machine", hosted: Any, pending: Any, part: Any) -> None:
        """The controller has answered a leader."""
        if part.error_code or hosted.leading is None:
            return
        where = (hosted.topic_id, hosted.index)
        asked = self.asked.get((where, pending.leader_epoch, pending.partition_epoch))
        kept = self.agreed.setdefault((machine.name, machine.life), deque(maxlen=JOURNAL_MAX))
        kept.append(
            Agreed(
                where,
                hosted.topic,
                hosted.host.clock.wall_ms(),
                part.leader_epoch,
                part.partition_epoch,
                tuple(part.isr),
                {} if asked is None else asked.behind_of_leaving,
                hosted.host.lag_ms_max,
            )
        )

    # ---- controllers

    def on_heartbeat(self, core: Any, request: Any, now_ms: int) -> None:
        """A controller has taken a broker's heartbeat."""
        self._heard_ms[core, request.broker_id, request.broker_epoch] = now_ms

    def silent_ms(self, core: Any, broker_id: int, now_ms: int) -> int | None:
        """Since the last heartbeat of the broker's registered life; None: `core` took none."""
        known = core.latest.brokers.get(broker_id)
        heard = None if known is None else self._heard_ms.get((core, broker_id, known.epoch))
        return None if heard is None else now_ms - heard

    def on_decided(self, machine: "Machine", core: Any, outcome: Any, how: str, now: Any) -> None:
        """A controller has decided something that may fence a broker; `now`: for its silence."""
        for record, _ in () if outcome is None else outcome.records:
            if not isinstance(record, BrokerRegistrationChangeRecord) or record.fenced <= 0:
                continue
            heard = self._heard_ms.get((core, record.broker_id, record.broker_epoch))
            silent = None if heard is None or now is None else now - heard
            key = (_epoch_of(machine), record.broker_id)
            told = how.format(record.broker_id)
            self.fencings.setdefault(key, []).append(Fencing(told, silent))


def _epoch_of(machine: "Machine") -> int:
    """In which its controller is active; -1 where it is not."""
    services = None if machine.node is None else machine.node.controller_services
    epoch = None if services is None else services.controller._epoch  # noqa: SLF001 (looks inside)
    return -1 if epoch is None else epoch


ON_REQUEST = "broker {} (asked to be fenced|has shut down)"
ON_SILENCE = r"broker {} sent no heartbeat for (\d+) ms"
ON_REFUSAL = "broker {}'s connection closed and its listener refuses connections"


@contextmanager
def listening(world: "NodesWorld") -> Iterator[None]:
    """Have the world's oracle hear what leaders and controllers do while it lasts."""
    oracle = world.checks.explanations.isr_oracle

    def here() -> "Machine | None":
        who = CURRENT.get()
        machine = None if who is None or who.dead else world.machine(who.name)
        return machine if machine is not None and machine.incarnation is who else None

    with ExitStack() as stack:
        for owner, name, listen in (
            (_Fetch, "read", _read),
            (HostedPartition, "apply", _apply),
            (AlterPartitionQueue, "submit", _submit),
            (AlterPartitionQueue, "_on_partition_response", _take),
            (Controller, "decide", _heartbeat),
            (Controller, "fence_one_stale_broker", _stale),
            (Controller, "fence_refused_broker", _refused),
        ):
            heard = wraps(getattr(owner, name))(listen(getattr(owner, name), oracle, here))
            stack.enter_context(patch.object(owner, name, heard))
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
            oracle.on_answer(machine, hosted, pending, part)
        return original(self, hosted, pending, part)

    return take


def _heartbeat(original: Any, oracle: IsrOracle, here: Here) -> Any:
    def decide(self: Any, key: ApiKey, call: Any) -> Any:
        decision = original(self, key, call)
        machine = here()
        if key is ApiKey.BROKER_HEARTBEAT and machine is not None:
            oracle.on_heartbeat(self, call.request, call.now)
            oracle.on_decided(machine, self, decision, ON_REQUEST, None)
        return decision

    return decide


def _stale(original: Any, oracle: IsrOracle, here: Here) -> Any:
    def stale(self: Any, now: Any) -> Any:
        outcome = original(self, now)
        machine = here()
        if machine is not None:
            oracle.on_decided(machine, self, outcome, ON_SILENCE, now)
        return outcome

    return stale


def _refused(original: Any, oracle: IsrOracle, here: Here) -> Any:
    def refused(self: Any, broker_id: int) -> Any:
        outcome = original(self, broker_id)
        machine = here()
        if machine is not None:
            oracle.on_decided(machine, self, outcome, ON_REFUSAL, None)
        return outcome

    return refused
