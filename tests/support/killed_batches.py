"""Batches written exactly-once without Spark, by drivers that are killed at a chosen request.

A killed driver sends nothing more, and neither do the tasks that share its connections. The next
driver starts from the batches that its predecessor has finished, as from Spark's checkpoint. A
stray task belongs to a killed driver, has connections of its own, and continues under the next one.

A group shows the offsets of each batch, which its decision has.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from sparkraft.base.errors import KafkaError
from sparkraft.pipeline.decisions import (
    LostTransactionsError,
    NotDecidedError,
    QueryBatch,
    Ticket,
)
from sparkraft.pipeline.exactly_once import Committer, SlotWriter
from sparkraft.pipeline.fetch import RangeReader
from sparkraft.pipeline.offsets import Range
from sparkraft.pipeline.options import (
    ClientOptions,
    Isolation,
    parse_servers,
    sink_options,
    source_options,
)
from sparkraft.pipeline.places import EARLIEST, LATEST
from sparkraft.pipeline.transactions import NOT_COMMITTED, ONGOING, GroupOffsets, TransactionCalls
from sparkraft.pipeline.wire import Cluster, Connection
from tests.support.ports import wait_until

PARTITIONS = 3
BATCHES = 3
ROWS = 12
TIMEOUT_MS = 60_000


class KilledError(BaseException):
    """The process ends here."""


class Fuse:
    """Kills at a request: before it is sent, or after it, when nothing reads the response."""

    def __init__(self, at: int | None = None, *, is_sent: bool = False, of=None) -> None:
        """Count the requests that `of` selects, else all."""
        self.at = at
        self.of = of
        self.is_sent = is_sent
        self.count = 0
        self.is_burnt = False

    def before(self, request) -> None:
        if self.of is None or self.of(request):
            self.count += 1
        if self.is_burnt or (self.count == self.at and not self.is_sent):
            self.is_burnt = True
            raise KilledError

    def after(self) -> None:
        if self.count == self.at and self.is_sent:
            self.is_burnt = True
            raise KilledError


class FusedConnection(Connection):
    """A connection of a process that may be killed."""

    fuse = Fuse()

    def send(self, request, *, version_max=None):
        self.fuse.before(request)
        super().send(request, version_max=version_max)
        self.fuse.after()


class FusedCluster(Cluster):
    """The connections of a process that may be killed."""

    def __init__(self, options: ClientOptions, fuse: Fuse) -> None:
        super().__init__(options)
        self._fuse = fuse

    def _connection(self, host, port):
        known = self._connections.get((host, port))
        if known is None or known.is_closed:
            known = self._connections[host, port] = FusedConnection(host, port, self.options)
            known.fuse = self._fuse
        return known


def client_options(bootstrap: str) -> ClientOptions:
    return ClientOptions(
        bootstrap_servers=parse_servers(bootstrap),
        client_id="test",
        request_timeout_ms=60_000,
        retries_max=300,
    )


def send_rows(writer: SlotWriter, topic: str, rows) -> None:
    for row in rows:
        writer.producer.send(topic, None, row, partition=row[-1] % PARTITIONS, timestamp_ms=1)


def committed_values(cluster: Cluster, topic: str, partitions: int) -> list[bytes]:
    """The values that readers of committed records see; none may be held back.

    EndTxn is answered before its markers are written.
    """
    parts = dict.fromkeys([(topic, number) for number in range(partitions)], LATEST)

    def is_stable() -> bool:
        stable = cluster.list_offsets(parts, committed_only=True)
        return stable == cluster.list_offsets(parts)

    wait_until(is_stable, "no open transaction holds readers back", MARKERS_S)
    return values_before(cluster, cluster.list_offsets(parts))


MARKERS_S = 20
"""Until markers are written, on a busy machine; transactions stay open for longer."""


def visible_values(cluster: Cluster, topic: str, partitions: int) -> list[bytes]:
    """The values that readers of committed records see now."""
    parts = [(topic, number) for number in range(partitions)]
    stable = cluster.list_offsets(dict.fromkeys(parts, LATEST), committed_only=True)
    return values_before(cluster, stable)


def values_before(cluster: Cluster, ends: dict) -> list[bytes]:
    """The committed values of partitions before these offsets."""
    start = cluster.list_offsets(dict.fromkeys(ends, EARLIEST))
    ranges = [Range(*each, start[each], end) for each, end in ends.items() if end > start[each]]
    if not ranges:
        return []
    topic = ranges[0].topic
    read = source_options({"kafka.bootstrap.servers": "in:1", "subscribe": topic}, streaming=False)
    client = replace(cluster.options, isolation=Isolation.READ_COMMITTED)
    found = RangeReader(cluster, ranges, replace(read, client=client)).read()
    return [value for piece in found for value in piece.column("value").to_pylist()]


class Application:
    """A query: its topic, what was finished, and drivers that come one after another."""

    def __init__(self, bootstrap: str, name: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self.timeout_ms = timeout_ms
        self.bootstrap = bootstrap
        self.options = client_options(bootstrap)
        self.cluster = Cluster(self.options)
        self.topic = name
        self.prefix = f"eo.{name}"
        self.group = f"{self.prefix}.lag"
        self.cluster.create_topic(name, partitions=PARTITIONS, configs={"retention.ms": "-1"})
        self.finished = 0
        self.strays: list = []

    def calls(self, fuse: Fuse | None = None) -> TransactionCalls:
        cluster = FusedCluster(self.options, fuse) if fuse else Cluster(self.options)
        return TransactionCalls(cluster, timeout_ms=self.timeout_ms)

    def committer(self, fuse: Fuse | None = None) -> Committer:
        return Committer(self.calls(fuse), self.prefix)

    def batch(self, number: int) -> QueryBatch:
        return QueryBatch("query", number)

    def rows(self, number: int) -> list[bytes]:
        return [b"%d:%d" % (number, row) for row in range(ROWS)]

    def shown(self, number: int) -> GroupOffsets:
        """The offsets of a batch: those of a partition differ by 100."""
        offsets = {(self.topic, each): 100 * number + each for each in range(PARTITIONS)}
        return GroupOffsets(self.group, offsets)

    def shown_batch(self) -> int:
        """The batch whose offsets the group has, all of them; -1 for none."""
        found = self.cluster.group_offsets(self.group)
        if not found:
            return -1
        number = found[self.topic, 0] // 100
        assert found == self.shown(number).offsets
        return number

    def decided_batch(self) -> int:
        """The last decided batch, as readers of committed records see it; -1 for none."""
        found = decisions(self, committed_only=True)
        return found[-1]["batch"] if found else -1

    def check_group(self, *, is_settled: bool) -> None:
        """Check that the group is not ahead of the decided batch; if all is settled, nor behind.

        The markers of one transaction reach the two partitions one after the other.
        """
        shown = self.shown_batch()
        wait_until(lambda: self.decided_batch() >= shown, f"batch {shown} is decided")
        if is_settled:
            wait_until(lambda: self.shown_batch() == self.decided_batch(), "the group catches up")

    def run(self, fuse: Fuse, dice: random.Random, *, batches: int = BATCHES) -> None:
        """Write the batches that are not finished, a repeated one with other slots."""
        calls = self.calls(fuse)
        committer = Committer(calls, self.prefix)
        while self.finished < batches:
            batch = self.batch(self.finished)
            ticket = committer.open()
            if not ticket.has(batch):
                slots = self.tasks(calls, ticket, batch, dice)
                self.let_strays_continue(dice)
                assert committer.commit(ticket, batch, slots, self.shown(batch.number))
            self.finished += 1

    def tasks(self, calls: TransactionCalls, ticket: Ticket, batch: QueryBatch, dice) -> list:
        count = dice.randrange(1, 4)
        shares = [self.rows(batch.number)[slot::count] for slot in range(count)]
        slots = []
        for slot, share in enumerate([*shares, []]):
            attempt = 0
            if dice.random() < 0.3:
                # An attempt that Spark gave up; its transaction stays open.
                lost = SlotWriter(calls, ticket, batch, slot=slot, attempt=0)
                send_rows(lost, self.topic, share)
                lost.finish()
                attempt = 1
            if dice.random() < 0.3:
                self.strays.append(self.stray(ticket, batch, slot, attempt, share))
            writer = SlotWriter(calls, ticket, batch, slot=slot, attempt=attempt)
            send_rows(writer, self.topic, share)
            slots.append(writer.finish())
        return [slot for slot in slots if slot is not None]

    def stray(self, ticket: Ticket, batch: QueryBatch, slot: int, attempt: int, share):
        """A task that starts now or later, step by step."""
        writer = SlotWriter(self.calls(), ticket, batch, slot=slot, attempt=attempt + 5)
        yield
        send_rows(writer, self.topic, share)
        yield
        writer.finish()

    def let_strays_continue(self, dice: random.Random) -> None:
        for stray in list(self.strays):
            if dice.random() < 0.5:
                try:
                    next(stray)
                except StopIteration:
                    self.strays.remove(stray)
                except KafkaError:
                    # It is fenced.
                    self.strays.remove(stray)

    def open_ids(self) -> dict[str, str]:
        return self.calls().ids(rf"{re.escape(self.prefix)}\.[0-9]+\.[0-9]+", states=[ONGOING])

    def committed(self) -> list[bytes]:
        assert not self.open_ids()
        return committed_values(self.cluster, self.topic, PARTITIONS)

    def check(self, batches: int = BATCHES) -> None:
        expected = Counter(row for number in range(batches) for row in self.rows(number))
        found = Counter(self.committed())
        lost, extra = sorted(expected - found), sorted(found - expected)
        assert (lost, extra) == ([], []), f"of {self.topic}"

    def check_lost(self, message: str) -> None:
        """Check that the last batch has lost a part, that nothing is there twice, and the message.

        It names the batch, the ids and partitions, and the command that writes the batch again.
        """
        assert f"batch {self.finished} of query query" in message
        assert f"pipeline reset FILE --replay {self.finished}" in message
        assert re.search(rf"transactions of {re.escape(self.prefix)}\.\d+\.\d+", message)
        found = Counter(self.committed())
        before = Counter(row for number in range(self.finished) for row in self.rows(number))
        rows = Counter(self.rows(self.finished))
        assert found == before + (rows & found)
        lost = rows - found
        assert lost, "nothing is lost"
        for row in lost:
            assert f"{self.topic}-{row[-1] % PARTITIONS}" in message

    def check_replayed(self, batch: int) -> None:
        """As `check`, but records of a batch that was written again may be there twice."""
        found = Counter(self.committed())
        expected = Counter(row for number in range(BATCHES) for row in self.rows(number))
        assert not expected - found, f"of {self.topic}"
        assert not found - expected - Counter(self.rows(batch)), f"of {self.topic}"


def requests_of_a_run(bootstrap: str, name: str, seed: int) -> int:
    """The number of requests of a run that is not killed, after which all rows are there once."""
    application = Application(bootstrap, name)
    fuse = Fuse()
    application.run(fuse, random.Random(seed))
    application.let_strays_continue(random.Random(seed))
    application.committer().open()
    application.check()
    application.check_group(is_settled=True)
    return fuse.count


def kill_once(bootstrap: str, name: str, *, at: int, is_sent: bool, seed: int) -> None:
    """Kill a driver at a request, possibly its successor too; check what readers and groups see."""
    application = Application(bootstrap, name)
    dice = random.Random(seed)
    fuses = [Fuse(at, is_sent=is_sent)]
    if dice.random() < 0.3:
        fuses.append(Fuse(dice.randrange(1, 30), is_sent=dice.random() < 0.5))
    for fuse in [*fuses, Fuse()]:
        try:
            application.run(fuse, dice)
        except KilledError:
            assert fuse.is_burnt
            application.check_group(is_settled=False)
    for _ in range(3):
        application.let_strays_continue(dice)
    application.committer().open()
    application.check()
    application.check_group(is_settled=True)


def timeout_of(properties: dict[str, str]) -> int:
    """The timeout of transactions that a user's options set."""
    given = {"kafka.bootstrap.servers": "in:1", "topic": "t"}
    return sink_options(given | properties).transaction_timeout_ms


OUTAGE_PROPERTIES = {"kafka.transaction.timeout.ms": "2000"}


def kill_before_an_outage(
    bootstrap: str, name: str, fuse: Fuse, *, seed: int, outage: Callable[[], None]
) -> bool:
    """Kill a driver for longer than the timeout; whether its batch lost a part.

    Then the next driver must stop and name the batch, and nothing may be visible twice until a
    user lets the batch be written again.

    Args:
        bootstrap: of a cluster that looks for expired transactions often.
        name: of the topic.
        fuse: when the driver is killed.
        seed: of the tasks.
        outage: called at once; what else fails meanwhile.
    """
    application = Application(bootstrap, name, timeout_ms=timeout_of(OUTAGE_PROPERTIES))
    dice = random.Random(seed)
    with suppress(KilledError):
        application.run(fuse, dice)
    assert fuse.is_burnt
    outage()
    application.strays.clear()
    wait_until(lambda: not application.open_ids(), "transactions time out", 60)
    application.check_group(is_settled=False)
    try:
        run_to_the_end(application, dice)
    except LostTransactionsError as error:
        lost = application.finished
        application.check_lost(str(error))
        application.committer().replay(lost)
        run_to_the_end(application, dice)
        application.committer().open()
        application.check_replayed(lost)
        application.check_group(is_settled=True)
        return True
    application.committer().open()
    application.check()
    application.check_group(is_settled=True)
    return False


RUNS_MAX = 5
"""A batch may take longer than two seconds on a busy machine. It is not decided then."""


def run_to_the_end(application: Application, dice: random.Random) -> None:
    """Run drivers until all batches are finished: one that cannot decide a batch stops."""
    for _ in range(RUNS_MAX):
        try:
            application.run(Fuse(), dice)
        except (NotDecidedError, KafkaError) as error:
            if isinstance(error, KafkaError) and error.code not in NOT_COMMITTED:
                raise
            application.strays.clear()
        else:
            return
    raise AssertionError(f"{application.topic} does not finish")


def kill_points(count, requests):
    """Requests at which to kill, spread evenly, in turn before and after they are sent; a seed."""
    for number in range(count):
        yield 1 + number * requests // count, number % 2 == 1, number


def described(application: Application, slot: int = 0, attempt: int = 0):
    """The state of a task's transactional id."""
    return application.calls().describe(f"{application.prefix}.{slot}.{attempt}")


def decisions(
    application: Application, *, partition: int = 0, committed_only: bool = False
) -> list:
    """The decisions, or the proofs in partition 1, as JSON; also those that are not committed."""
    topic = f"{application.prefix}.decisions"
    if topic not in application.cluster.topics([topic]):
        return []
    place = topic, partition
    ends = application.cluster.list_offsets({place: LATEST}, committed_only=committed_only)
    read = source_options({"kafka.bootstrap.servers": "in:1", "subscribe": topic}, streaming=False)
    isolation = Isolation.READ_COMMITTED if committed_only else Isolation.READ_UNCOMMITTED
    read = replace(read, client=replace(application.options, isolation=isolation))
    if not ends[place]:
        return []
    pieces = RangeReader(
        application.cluster, [Range(topic, partition, 0, ends[place])], read
    ).read()
    return [json.loads(v) for piece in pieces for v in piece.column("value").to_pylist()]
