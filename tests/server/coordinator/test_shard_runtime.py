"""The runtime with a shard of its own kind: effects, their results, errors and lost leadership."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis, Offset
from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.coordinator.runtime import (
    AppendCallback,
    CoordinatorShard,
    Decision,
    Effect,
    Instant,
    MetadataDelta,
)
from sparkraft.coordinator.steps import Steps
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.records.batch import parse_header
from sparkraft.records.control import ControlType, EndTransaction, end_transaction_batch
from sparkraft.records.filter import without_records
from sparkraft.server.coordinator.parked_requests import REPLY_UNITS
from sparkraft.server.coordinator.shard_log import SPLIT_BYTES
from sparkraft.server.coordinator.shard_runtime import ShardRuntime
from sparkraft.server.coordinator.shard_spec import ShardSpec
from sparkraft.server.loop_turns import LoopTurns
from tests.server.coordinator.fake_host import FakeHost

NOTHING: Decision[str, None] = Decision(response=None)

MARKER = end_transaction_batch(
    EndTransaction(ControlType.COMMIT, 0), producer_id=1, producer_epoch=0, timestamp=0
)


@dataclass(frozen=True)
class SendMarker(Effect):
    word: str


@dataclass(frozen=True)
class WordAppended(AppendCallback):
    word: str


class WordShard:
    """Keeps the words of its log. `send` appends a word, sends it, and appends the result."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.events: list[Any] = []
        self.wake_at: Millis | None = None

    def replay(self, offset: Offset, record: str, producer_id: int = -1) -> None:
        self.words.append(record)

    def replay_in_steps(self, offset: Offset, record: str, producer_id: int = -1) -> Steps[None]:
        self.replay(offset, record, producer_id)
        yield 1

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> Steps[None]:
        self.words.append(f"end of {producer_id}")
        yield 1

    def loaded(self, image: Any, now: Instant) -> Decision[str, None]:
        unsent = [word for word in self.words if f"sent {word}" not in self.words]
        sends = [word for word in unsent if not word.startswith("sent ")]
        return Decision(response=None, effects=tuple(SendMarker(word) for word in sends))

    def unload(self, now: Instant) -> None:
        self.events.append("unload")

    def on_image(self, delta: MetadataDelta, now: Instant) -> Decision[str, None]:
        self.events.append(delta.deleted_topics)
        return NOTHING

    def on_append_completed(
        self, callback: AppendCallback, error: ErrorCode | None, now: Instant
    ) -> Decision[str, None]:
        self.events.append((callback, error))
        return NOTHING

    def on_effect_completed(self, effect: Effect, result: Any, now: Instant) -> Decision[str, None]:
        self.events.append((effect, result))
        assert isinstance(effect, SendMarker)
        if isinstance(result, KafkaError):
            return NOTHING
        return Decision(response=None, records=(f"sent {effect.word}",))

    def on_timers(self, now: Instant) -> Iterable[Decision[str, None]]:
        return ()

    def take_replies(self) -> list[tuple[int, Any]]:
        return []

    def send(self, word: str) -> Decision[str, int]:
        return Decision(
            response=len(self.words),
            records=(word,),
            append_callback=WordAppended(word),
            effects=(SendMarker(word),),
        )


_: CoordinatorShard[str] = WordShard()


class Sender:
    """Executes `SendMarker` when it is released."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def send(self, effect: SendMarker) -> Any:
        self.sent.append(effect.word)
        return await asyncio.shield(self.result)


class SenderAtOnce:
    """Executes `SendMarker` when it is called."""

    def __init__(self) -> None:
        self.result: Any = "done"

    def send(self, _: SendMarker) -> Any:
        if isinstance(self.result, KafkaError):
            raise self.result
        return self.result


def runtime_on(
    host: FakeHost,
    sender: "Sender | SenderAtOnce",
    *,
    write_timeout_ms: int = 60_000,
    shard: type[WordShard] = WordShard,
) -> ShardRuntime[WordShard, str]:
    spec = ShardSpec(
        topic="words",
        new_shard=lambda _epoch: shard(),
        encode=lambda word: (b"word", word.encode()),
        decode=lambda _, value: None if value is None else value.decode(),
        translate_error=lambda error: error,
        write_timeout_ms=write_timeout_ms,
        compression=0,
        executors={SendMarker: sender.send},
    )
    opened = host.in_epoch("words", 0, host.leader_epoch)
    return ShardRuntime(spec, opened, 0, host.leader_epoch)


def new_host() -> FakeHost:
    return FakeHost(SimpleNamespace(image=EMPTY_IMAGE))


async def turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def test_effects_start_once_records_are_committed_and_their_results_are_events() -> None:
    async def test() -> None:
        host, sender = new_host(), Sender()
        runtime = runtime_on(host, sender)
        runtime.start()
        host.sync_by_hand = True
        response = runtime.execute_write(lambda shard, _: shard.send("a"))
        await turns()
        assert sender.sent == []
        host.sync()
        assert not isinstance(response, int)
        assert await response == 0
        await turns()
        assert sender.sent == ["a"]
        assert runtime.shard.events == [(WordAppended("a"), None)]
        host.sync_by_hand = False
        sender.result.set_result("done")
        await turns()
        assert runtime.shard.events[1:] == [(SendMarker("a"), "done")]
        assert runtime.shard.words == ["a", "sent a"]

    asyncio.run(test())


def test_a_result_that_is_available_reaches_the_shard_before_the_response() -> None:
    """So that the markers of a transaction are written when its producer begins the next one."""

    async def test() -> None:
        host = new_host()
        sender = SenderAtOnce()
        runtime = runtime_on(host, sender)
        runtime.start()
        assert runtime.execute_write(lambda shard, _: shard.send("a")) == 0
        assert runtime.shard.words == ["a", "sent a"]
        sender.result = KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        assert runtime.execute_write(lambda shard, _: shard.send("b")) == 2
        assert runtime.shard.events[-1] == (SendMarker("b"), sender.result)
        assert host.tasks == []

    asyncio.run(test())


def test_an_available_result_reaches_a_shard_in_steps_after_them() -> None:
    async def test() -> None:
        host = new_host()
        host.units_max = 1
        runtime = runtime_on(host, SenderAtOnce())
        runtime.start()

        def long(shard: WordShard, _: Instant) -> Steps[Decision[str, int]]:
            yield 1
            return shard.send("a")

        assert await runtime.execute_write(long) == 0  # type: ignore[misc]
        await turns()
        assert runtime.shard.words == ["a", "sent a"]

    asyncio.run(test())


def test_effects_of_a_failed_append_are_dropped() -> None:
    async def test() -> None:
        host, sender = new_host(), Sender()
        runtime = runtime_on(host, sender)
        runtime.start()
        host.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
        with pytest.raises(KafkaError):
            runtime.execute_write(lambda shard, _: shard.send("a"))
        host.refuse = None
        host.sync_by_hand = True
        response = runtime.execute_write(lambda shard, _: shard.send("b"))
        host.sync(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        assert not isinstance(response, int)
        with pytest.raises(KafkaError):
            await response
        await turns()
        assert sender.sent == []
        assert runtime.shard.events == [
            (WordAppended("a"), ErrorCode.NOT_ENOUGH_REPLICAS),
            (WordAppended("b"), ErrorCode.KAFKA_STORAGE_ERROR),
        ]

    asyncio.run(test())


def test_an_error_of_an_effect_is_its_result() -> None:
    async def test() -> None:
        host, sender = new_host(), Sender()
        runtime = runtime_on(host, sender)
        runtime.start()
        runtime.execute_write(lambda shard, _: shard.send("a"))
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        sender.result.set_exception(error)
        await turns()
        assert runtime.shard.events[1:] == [(SendMarker("a"), error)]
        assert runtime.shard.words == ["a"]

    asyncio.run(test())


def test_the_next_leader_repeats_an_effect_whose_result_was_lost() -> None:
    async def test() -> None:
        host, sender = new_host(), Sender()
        first = runtime_on(host, sender)
        first.start()
        first.execute_write(lambda shard, _: shard.send("a"))
        await turns()
        host.leader_epoch = 1
        first.close()
        sender.result.set_result("done")
        await turns()
        assert first.shard.events[1:] == ["unload"]
        again = Sender()
        second = runtime_on(host, again)
        assert second.must_load
        host.sync_by_hand = True
        await second.load()
        await turns()
        assert again.sent == []  # The loaded log is not committed yet.
        host.sync()
        await turns()
        assert again.sent == ["a"]

    asyncio.run(test())


def test_a_shard_that_resigns_while_it_loads_does_nothing() -> None:
    """KAFKA-16030: its log may have another leader by then."""

    async def test() -> None:
        host, sender = new_host(), Sender()
        first = runtime_on(host, sender)
        first.start()
        first.execute_write(lambda shard, _: shard.send("a"))
        await turns()
        again = Sender()
        second = runtime_on(host, again)
        second.close()
        await second.load()
        await turns()
        assert not second.is_serving
        assert (again.sent, second.shard.words) == ([], [])

    asyncio.run(test())


def test_a_shard_that_has_resigned_is_not_read() -> None:
    """A handler in steps may still have it; the next coordinator has written since."""

    async def test() -> None:
        runtime = runtime_on(new_host(), Sender())
        runtime.start()
        assert runtime.execute_read(lambda shard, _: shard.words) == []
        runtime.close()
        with pytest.raises(KafkaError) as refused:
            runtime.execute_read(lambda shard, _: shard.words)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

    asyncio.run(test())


def test_a_shard_sees_each_change_of_metadata_while_it_serves() -> None:
    async def test() -> None:
        runtime = runtime_on(new_host(), Sender())
        delta = MetadataDelta(EMPTY_IMAGE, EMPTY_IMAGE, None)
        runtime.on_image(delta)
        assert runtime.shard.events == []
        runtime.start()
        runtime.on_image(delta)
        assert runtime.shard.events == [frozenset()]

    asyncio.run(test())


def test_a_marker_that_takes_long_holds_back_what_comes_after_it() -> None:
    async def test() -> None:
        host = new_host()
        host.units_max = 1
        runtime = runtime_on(host, Sender())
        runtime.start()
        host.sync_by_hand = True

        async def end(producer_id: int, check: Callable[[], None]) -> None:
            await runtime.end_transaction(MARKER, producer_id, committed=True, check=check)

        def marker(producer_id: int) -> None:
            checked.append((producer_id, list(runtime.shard.words)))
            if len(checked) > 1:
                both_checked.set()

        both_checked = asyncio.Event()
        checked: list[tuple[int, list[str]]] = []
        first = asyncio.ensure_future(end(1, lambda: marker(1)))
        await asyncio.sleep(0)
        assert runtime.is_busy
        written = runtime.execute_write(lambda shard, _: shard.send("after"))
        second = asyncio.ensure_future(end(2, lambda: marker(2)))
        await asyncio.wait_for(both_checked.wait(), 30)
        await turns()
        assert runtime.shard.words == ["end of 1", "after", "end of 2"]
        assert checked == [(1, []), (2, ["end of 1", "after"])]
        assert not first.done()
        host.sync()
        await first
        await second
        assert await written == 1  # type: ignore[misc]

    asyncio.run(test())


def test_a_marker_is_refused_by_what_was_appended_while_it_waited() -> None:
    async def test() -> None:
        host = new_host()
        host.units_max = 1
        runtime = runtime_on(host, Sender())
        runtime.start()

        def refuse() -> None:
            if "begun again" in runtime.shard.words:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)

        def nothing() -> None: ...

        first = asyncio.ensure_future(
            runtime.end_transaction(MARKER, 1, committed=True, check=nothing)
        )
        await asyncio.sleep(0)
        assert runtime.is_busy
        written = runtime.execute_write(lambda shard, _: shard.send("begun again"))
        late = asyncio.ensure_future(
            runtime.end_transaction(MARKER, 1, committed=True, check=refuse)
        )
        with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH"):
            await late
        await first
        assert await written == 1  # type: ignore[misc]
        assert runtime.shard.words == ["end of 1", "begun again"]

    asyncio.run(test())


def test_clients_look_for_another_coordinator_when_a_write_is_not_committed_in_time() -> None:
    def reject(_shard: WordShard, _now: Instant) -> Decision[str, int]:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def rejection(runtime: ShardRuntime[WordShard, str]) -> ErrorCode:
        with pytest.raises(KafkaError) as rejected:
            runtime.execute_write(reject)
        return rejected.value.code

    async def test() -> None:
        host = new_host()
        runtime = runtime_on(host, Sender(), write_timeout_ms=10)
        runtime.start()
        assert rejection(runtime) is ErrorCode.CONCURRENT_TRANSACTIONS
        host.sync_by_hand = True
        response = runtime.execute_write(lambda shard, _: shard.send("a"))
        assert rejection(runtime) is ErrorCode.CONCURRENT_TRANSACTIONS
        with pytest.raises(KafkaError) as late:
            await response  # type: ignore[misc]
        assert late.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(0.005)
        assert rejection(runtime) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        host.sync()
        await turns()
        assert rejection(runtime) is ErrorCode.CONCURRENT_TRANSACTIONS
        runtime.close()

    asyncio.run(test())


@pytest.mark.parametrize("is_atomic", [True, False])
def test_a_large_decision_is_one_batch_unless_it_may_be_several(is_atomic: bool) -> None:
    """Tombstones of a group with more offsets than a batch holds are not atomic, as in Kafka."""

    async def test() -> None:
        host, sender = new_host(), Sender()
        runtime = runtime_on(host, sender)
        runtime.start()
        words = tuple(f"{number:04d}" + "x" * 1_000 for number in range(2_000))
        decision: Decision[str, int] = Decision(response=7, records=words, is_atomic=is_atomic)
        response = runtime.execute_write(lambda shard, _: decision)
        assert (response if isinstance(response, int) else await response) == 7
        assert runtime.shard.words == list(words)
        sizes = [len(batch) for batch in host.batches]
        if is_atomic:
            assert len(sizes) == 1
        else:
            assert len(sizes) > 7
            assert max(sizes) < SPLIT_BYTES * 1.1
        loaded = runtime_on(host, sender)
        await loaded.load()
        assert loaded.shard.words == list(words)

    asyncio.run(test())


def pieces(count: int) -> Steps[Decision[str, str]]:
    for _ in range(count):
        yield 1
    return Decision(response="long")


def test_a_committed_write_is_answered_before_the_work_that_came_after_it() -> None:
    """KAFKA-16374: under load its response would otherwise wait for the queue a second time."""

    async def test() -> None:
        host = new_host()
        host.units_max = 1
        runtime = runtime_on(host, Sender())
        runtime.start()
        host.sync_by_hand = True
        order: list[str] = []

        async def note(name: str, response: Any) -> None:
            await response
            order.append(name)

        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            first = runtime.execute_write(lambda shard, _: shard.send("a"))
            tasks.create_task(note("first", first))
            await turns()
            assert order == []
            long = runtime.execute_write(lambda *_: pieces(20))
            later = runtime.execute_write(lambda shard, _: shard.send("b"))
            assert runtime.is_busy
            host.sync()
            host.sync_by_hand = False
            tasks.create_task(note("long", long))
            tasks.create_task(note("later", later))
        assert order == ["first", "long", "later"]

    asyncio.run(test())


def test_a_write_that_timed_out_is_completed_once_when_it_is_committed() -> None:
    """KAFKA-18174: the shard and its effects see one end, and the client one response."""

    async def test() -> None:
        host, sender = new_host(), Sender()
        runtime = runtime_on(host, sender, write_timeout_ms=10)
        runtime.start()
        host.sync_by_hand = True
        response = runtime.execute_write(lambda shard, _: shard.send("a"))
        with pytest.raises(KafkaError) as late:
            await response  # type: ignore[misc]
        assert late.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(0.02)
        assert runtime.shard.events == []
        host.sync()
        await turns()
        assert runtime.shard.events == [(WordAppended("a"), None)]
        assert sender.sent == ["a"]

    asyncio.run(test())


def test_a_batch_that_compaction_emptied_does_not_stop_the_load() -> None:
    """Kafka's pull request 17688: an empty batch takes the loader to the offset after it."""

    async def test() -> None:
        host, sender = new_host(), Sender()
        runtime = runtime_on(host, sender)
        runtime.start()
        for word in "abc":
            runtime.execute_write(lambda shard, _, word=word: shard.send(word))
        await turns()
        host.batches[1] = without_records(parse_header(host.batches[1]))
        loaded = runtime_on(host, sender)
        async with asyncio.timeout(30):
            await loaded.load()
        assert loaded.is_serving
        assert loaded.shard.words == ["a", "c"]

    asyncio.run(test())


class TickingShard(WordShard):
    """Writes a word of its own when its timer fires."""

    def __init__(self) -> None:
        super().__init__()
        self.wake_at = Millis(0)

    def on_timers(self, now: Instant) -> Iterable[Decision[str, None]]:
        self.wake_at = None
        yield Decision(response=None, records=("tick",))


def test_of_shards_whose_timers_are_due_together_one_runs_in_an_iteration() -> None:
    async def test() -> None:
        turns_of_all = LoopTurns()
        runtimes = []
        for _ in range(10):
            host = new_host()
            host.turns = turns_of_all
            runtimes.append(runtime_on(host, Sender(), shard=TickingShard))
        for runtime in runtimes:
            runtime.start()
        ticked = [0]
        async with asyncio.timeout(30):
            while ticked[-1] < len(runtimes):
                await asyncio.sleep(0)
                ticked.append(sum(runtime.shard.words == ["tick"] for runtime in runtimes))
        assert max(after - before for before, after in pairwise(ticked)) == 1

    asyncio.run(test())


REQUESTS = 500
REPLIES_AT_ONCE = LOOP_WORK_MAX.partitions // REPLY_UNITS


@dataclass(frozen=True)
class Gathered(AppendCallback):
    """All parked requests get a reply."""


class GatheringShard(WordShard):
    """Parks requests; the last of them appends a word, and then all get a reply, in steps."""

    def __init__(self) -> None:
        super().__init__()
        self.parked: list[int] = []
        self.replies: list[tuple[int, Any]] = []

    def gather(self, reply_to: int, _now: Instant) -> Decision[str, None]:
        self.parked.append(reply_to)
        if len(self.parked) < REQUESTS:
            return NOTHING
        return Decision(response=None, records=("all",), append_callback=Gathered())

    def on_append_completed(
        self, callback: AppendCallback, error: ErrorCode | None, now: Instant
    ) -> Any:
        return self.reply_to_all()

    def reply_to_all(self) -> Steps[Decision[str, None]]:
        self.replies = [(reply_to, "gathered") for reply_to in self.parked]
        yield 1
        return NOTHING

    def take_replies(self) -> list[tuple[int, Any]]:
        taken, self.replies = self.replies, []
        return taken


async def most_ended_in_an_iteration(responses: list[Any], start: Callable[[], None]) -> int:
    """How many responses ended together after `start`; returns once all have."""
    waiting = [asyncio.ensure_future(response) for response in responses]
    await asyncio.sleep(0)
    start()
    ended = [0]
    async with asyncio.timeout(30):
        while ended[-1] < len(waiting):
            await asyncio.sleep(0)
            ended.append(sum(each.done() for each in waiting))
    for each in waiting:
        each.exception()
    return max(after - before for before, after in pairwise(ended))


def gathering(host: FakeHost, count: int) -> tuple[ShardRuntime[Any, str], list[Any]]:
    """A runtime with so many parked requests, and their responses."""
    runtime: ShardRuntime[Any, str] = runtime_on(host, Sender(), shard=GatheringShard)
    runtime.start()
    return runtime, [
        runtime.execute_parked(str, lambda shard, to, now: shard.gather(to, now))
        for _ in range(count)
    ]


def test_many_parked_requests_get_their_replies_over_many_iterations() -> None:
    async def test() -> None:
        host = new_host()
        host.sync_by_hand = True
        runtime, responses = gathering(host, REQUESTS)
        most = await most_ended_in_an_iteration(responses, host.sync)
        assert 0 < most <= REPLIES_AT_ONCE
        assert runtime.shard.words == ["all"]

    asyncio.run(test())


def test_many_parked_requests_of_a_shard_that_resigns_end_over_many_iterations() -> None:
    async def test() -> None:
        runtime, responses = gathering(new_host(), REQUESTS - 1)
        tasks = [asyncio.ensure_future(each) for each in responses]
        most = await most_ended_in_an_iteration(list(tasks), runtime.close)
        assert 0 < most <= REPLIES_AT_ONCE
        codes = {each.exception().code for each in tasks}  # type: ignore[union-attr]
        assert codes == {ErrorCode.NOT_COORDINATOR}

    asyncio.run(test())


def test_an_append_that_is_committed_at_once_ends_in_steps() -> None:
    """As with one replica and no flush."""

    async def test() -> None:
        runtime, responses = gathering(new_host(), REQUESTS)
        most = await most_ended_in_an_iteration(responses, lambda: None)
        assert 0 < most <= REPLIES_AT_ONCE
        await turns()
        assert not runtime.is_busy
        assert runtime.shard.words == ["all"]

    asyncio.run(test())
