"""Appends of one partition whose records are checked or rewritten in a thread first.

    submit → `check_produced` in a thread → first in the queue → append, or refusal

Order: appends happen in the order of their submission, whichever is prepared first. While one
waits, later ones for the partition wait too, also those that need no thread.

Meanwhile the partition may have changed. Right before the append:

* another leader epoch: NOT_LEADER_OR_FOLLOWER, as for a batch that arrives during the change
* another topic config: the records are prepared again
* the transaction guard, the producer's sequence and the log end are read then, for the first time

If a batch is refused for a reason that may be temporary, later batches of the same sender that are
in the queue are refused too: they would leave a gap (`Connection.pipelined_refusals`).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.records.validate import Origin, Prepared, Rules, check_produced, is_heavy

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sparkraft.base.loop_work import WorkMax
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.env import Env
    from sparkraft.storage.log import AppendInfo

RETRIABLE_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors of the partition's state: the next batch might be appended, and leave a gap."""

Append = Callable[[Any, "Prepared | None"], "AppendInfo"]
"""Appends records that are prepared, or None: as they are; raises KafkaError."""


OnEnded = Callable[["AppendInfo | None", Exception | None], None]


class QueuedAppend:
    """One batch that waits.

    Args:
        records: the batch as received.
        acks: of the request.
        sender: whose later batches must not overtake it; a connection.
        check: called right before the append; raises KafkaError to refuse it.
        on_ended: called at once with the result of the append, or the error: KafkaError refuses it.
    """

    __slots__ = (
        "acks",
        "check",
        "epoch",
        "error",
        "has_ended",
        "on_ended",
        "prepared",
        "ready",
        "records",
        "rules",
        "sender",
    )

    def __init__(
        self,
        records: Any,
        *,
        acks: int,
        sender: object,
        check: "Callable[[HostedPartition, Any], None] | None",
        on_ended: OnEnded,
    ) -> None:
        self.records = records
        self.acks = acks
        self.sender = sender
        self.check = check
        self.on_ended = on_ended
        self.has_ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.epoch = -1
        self.rules: Rules | None = None
        """Those it was prepared for; None: not prepared."""
        self.prepared: Prepared | None = None
        self.error: Exception | None = None
        self.ready = True
        """Whether no thread works on it."""

    def begin(self, epoch: int) -> None:
        """It waits for the partition's present leader epoch."""
        self.epoch = epoch

    def prepare_for(self, rules: Rules) -> None:
        """A thread prepares it under these rules."""
        self.rules = rules
        self.error = None
        self.ready = False

    def on_prepared(self, done: "asyncio.Future[Prepared]") -> None:
        """The thread has ended."""
        self.ready = True
        if done.cancelled():
            self.error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the node stops")
            return
        error = done.exception()
        if error is None:
            self.prepared = done.result()
        elif isinstance(error, Exception):
            self.error = error
        else:
            raise error

    def refuse(self, error: KafkaError) -> None:
        """Refuse it with the error of an earlier batch, whatever its thread finds."""
        self.error = error
        self.rules = None
        self.ready = True


class AppendQueue:
    """See the module docstring.

    Args:
        partition: it appends to.
        on_empty: called when nothing waits any more.
        in_thread: runs `check_produced` in a thread.
        now_ms: wall clock.
        work_max: batches with more work are prepared in a thread.
        append: appends one batch.
    """

    def __init__(
        self,
        partition: "HostedPartition",
        *,
        on_empty: Callable[["AppendQueue"], None],
        in_thread: "Callable[..., Awaitable[Prepared]]",
        now_ms: Callable[[], int],
        work_max: "WorkMax",
        append: "Callable[[HostedPartition, QueuedAppend], AppendInfo]",
    ) -> None:
        self._partition = partition
        self._on_empty = on_empty
        self._in_thread = in_thread
        self._now_ms = now_ms
        self._work_max = work_max
        self._append = append
        self._waiting: deque[QueuedAppend] = deque()

    def submit(self, one: QueuedAppend) -> None:
        """Queue a batch, or append it now if nothing is waiting and it needs no thread."""
        one.begin(self._partition.leader_epoch)
        self._waiting.append(one)
        if is_heavy(one.records, self._partition.log.rules, self._work_max):
            self._prepare(one)
        else:
            self._drain()

    def _prepare(self, one: QueuedAppend) -> None:
        rules = self._partition.log.rules
        one.prepare_for(rules)
        done = asyncio.ensure_future(
            self._in_thread(check_produced, one.records, rules, self._now_ms(), Origin.CLIENT)
        )
        done.add_done_callback(partial(self._on_prepared, one))

    def _on_prepared(self, one: QueuedAppend, done: "asyncio.Future[Prepared]") -> None:
        one.on_prepared(done)
        self._drain()

    def _drain(self) -> None:
        """Append the batches that are ready and next."""
        waiting = self._waiting
        while waiting and waiting[0].ready:
            one = waiting[0]
            if one.rules is not None and one.rules != self._partition.log.rules:
                self._prepare(one)
                return
            self._finish(waiting.popleft())
        if not waiting:
            self._on_empty(self)

    def _finish(self, one: QueuedAppend) -> None:
        info, failure = None, None
        try:
            info = self._append_now(one)
        except Exception as error:
            failure = error
            if isinstance(error, KafkaError) and error.code in RETRIABLE_ERRORS:
                for later in self._waiting:
                    if later.sender is one.sender:
                        later.refuse(error)
        one.on_ended(info, failure)
        one.has_ended.set_result(None)

    def _append_now(self, one: QueuedAppend) -> "AppendInfo":
        partition = self._partition
        if not partition.is_leader or partition.leader_epoch != one.epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the leader epoch of {partition} has changed"
            )
        if one.check is not None:
            one.check(partition, one.records)
        if one.error is not None:
            raise one.error
        return self._append(partition, one)


class AppendQueues:
    """The queues of one broker's partitions.

    Args:
        env: its threads, clock and bounds.
        append: appends a prepared batch.

    Attributes:
        waiting: the queues of partitions with batches that a thread prepares, or that wait for one.
    """

    def __init__(
        self, env: "Env", append: "Callable[[HostedPartition, QueuedAppend], AppendInfo]"
    ) -> None:
        self._env = env
        self._append = append
        self.waiting: dict[HostedPartition, AppendQueue] = {}

    def submit(self, partition: "HostedPartition", one: QueuedAppend) -> None:
        """Append a batch after those of its partition that wait."""
        queue = self.waiting.get(partition) or AppendQueue(
            partition,
            on_empty=partial(self._on_empty, partition),
            in_thread=self._env.run_on_records,
            now_ms=self._env.clock.wall_ms,
            work_max=self._env.work_max,
            append=self._append,
        )
        self.waiting[partition] = queue
        queue.submit(one)

    def _on_empty(self, partition: "HostedPartition", queue: AppendQueue) -> None:
        if self.waiting.get(partition) is queue:
            del self.waiting[partition]
