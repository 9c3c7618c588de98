"""The console's parts without a cluster: addresses, refusals, JSON, streams, journals."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.console.elections import ElectionJournals
from sparkraft.console.guard import RequestGuard
from sparkraft.console.json_text import json_text
from sparkraft.console.listen import ListenAddress, allowed_hosts, bind, parse_listen
from sparkraft.console.parameters import NUMBER_MAX, Parameters
from sparkraft.console.recent import ANSWERS_MAX, RecentAnswers
from sparkraft.console.releasing import ReleasingResponse
from sparkraft.console.stream import STREAMS_MAX, EventHub, TooManyStreamsError
from sparkraft.console.unserved import KEPT_SECONDS, RefusalTimer, UnservedRequest
from sparkraft.protocol.messages.k10000_describe_elections import (
    DescribeElectionsResponse,
    ElectionEntry,
)


@pytest.mark.parametrize("text", ["127.0.0.1:0", "localhost:9000", "[::1]:9000", "127.1.2.3:1"])
def test_addresses_of_loopback_are_listened_on(text: str):
    assert parse_listen(text).port == int(text.rpartition(":")[2])


@pytest.mark.parametrize(
    "text", ["0.0.0.0:80", "[::]:80", "192.168.1.4:80", "example.org:80", "127.0.0.1", ":80", "x:y"]
)
def test_other_addresses_are_refused(text: str):
    with pytest.raises(ValueError, match=r"loopback|expected HOST:PORT"):
        parse_listen(text)


def test_the_next_port_is_taken_only_instead_of_the_default():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            bind(ListenAddress(host="127.0.0.1", port=port))
        default = ListenAddress(host="127.0.0.1", port=port, is_default_port=True)
        with bind(default) as bound:
            assert bound.getsockname()[1] > port


async def _no_app(*_: object) -> None:
    raise AssertionError("never called")


GUARD = RequestGuard(_no_app, hosts=allowed_hosts(9000, ("Tunnel.example:443",)))


@pytest.mark.parametrize(
    "host",
    ["localhost:9000", "127.0.0.1:9000", "[::1]:9000", "LOCALHOST:9000", "tunnel.example:443"],
)
def test_own_hosts_are_accepted(host: str):
    assert GUARD.refusal({b"host": host.encode()}) is None


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9001", "evil.example:9000", "localhost.evil.example:9000", ""]
)
def test_other_hosts_are_refused(host: str):
    refusal = GUARD.refusal({b"host": host.encode()})
    assert refusal is not None
    assert refusal[0] == 400


def test_a_request_without_a_host_is_refused():
    assert GUARD.refusal({}) is not None


def test_integers_that_javascript_rounds_become_strings():
    exact, large = (1 << 53) - 1, 1 << 53
    document = {"a": [exact, -exact], "b": {"c": (large, -large)}, "d": True, "e": 1.5, "f": None}
    assert json.loads(json_text(document)) == {
        "a": [exact, -exact],
        "b": {"c": [str(large), str(-large)]},
        "d": True,
        "e": 1.5,
        "f": None,
    }
    assert "\n" not in json_text({"text": "two\nlines"})


def run(work: Callable[[EventHub], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await work(EventHub())

    asyncio.run(main())


def test_a_stream_begins_with_the_newest_and_gets_each_change():
    async def work(hub: EventHub) -> None:
        hub.publish("cluster", {"n": 1})
        hub.publish("cluster", {"n": 2})
        stream = hub.open()
        pieces = stream.encoded()
        assert await anext(pieces) == b"retry: 2000\n\n"
        assert await anext(pieces) == b'id: 2\nevent: cluster\ndata: {"n":2}\n\n'
        assert not hub.publish("cluster", {"n": 2})
        assert hub.publish("cluster", {"n": 3})
        assert await anext(pieces) == b'id: 3\nevent: cluster\ndata: {"n":3}\n\n'
        hub.close()
        assert [piece async for piece in pieces] == []

    run(work)


def test_a_slow_page_gets_only_the_newest_of_each_kind():
    async def work(hub: EventHub) -> None:
        stream = hub.open()
        pieces = stream.encoded()
        await anext(pieces)
        for number in range(1000):
            hub.publish("cluster", number)
            hub.publish("quorum", number)
        hub.close()
        left = [piece async for piece in pieces]
        assert [piece.splitlines()[2] for piece in left] == [b"data: 999", b"data: 999"]

    run(work)


def test_streams_are_bounded_and_polling_stops_without_any():
    async def work(hub: EventHub) -> None:
        streams = [hub.open() for _ in range(STREAMS_MAX)]
        with pytest.raises(TooManyStreamsError):
            hub.open()
        await hub.wait_until_watched()
        for stream in streams:
            hub.discard(stream)
        assert hub.stream_count == 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await hub.wait_until_watched()

    run(work)


def test_a_page_that_leaves_before_its_stream_begins_makes_room() -> None:
    begun, released = [], []

    async def body() -> AsyncIterator[bytes]:
        begun.append(True)
        yield b""

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(_: object) -> None:
        await asyncio.sleep(0)

    async def work() -> None:
        response = ReleasingResponse(
            body(), media_type="text/plain", release=lambda: released.append(True)
        )
        await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)

    asyncio.run(work())
    assert (begun, released) == ([], [True])


def test_news_by_key_ignores_the_rest():
    async def work(hub: EventHub) -> None:
        assert hub.publish("quorum", {"epoch": 1, "mark": 5}, key=1)
        assert not hub.publish("quorum", {"epoch": 1, "mark": 6}, key=1)

    run(work)


def witness(node_id: int, *times: int) -> DescribeElectionsResponse:
    entries = [ElectionEntry(at_ms=at, kind="follower", epoch=1, reason="") for at in times]
    return DescribeElectionsResponse(node_id=node_id, state="Follower", entries=entries)


def times(journals: ElectionJournals, *seen: DescribeElectionsResponse) -> list[list[int]]:
    journals.merge(seen, journals.since_ms)
    return [[entry.at_ms for entry in each.entries] for each in seen]


def test_a_poll_asks_for_news_and_returns_all_entries():
    journals = ElectionJournals()
    assert journals.since_ms == -1
    assert times(journals, witness(1, 10, 20), witness(2, 10, 30)) == [[10, 20], [10, 30]]
    journals._polls = 1
    assert journals.since_ms == 20
    # Entries at that time come again; another may have the same time.
    assert times(journals, witness(1, 20, 20, 40), witness(2, 30)) == [[10, 20, 20, 40], [10, 30]]
    assert journals.since_ms == 30


def test_all_entries_are_read_again_for_a_node_that_is_new():
    journals = ElectionJournals()
    times(journals, witness(1, 10, 20))
    journals._polls = 1
    assert times(journals, witness(1, 20), witness(2, 30)) == [[10, 20], [30]]
    assert journals.since_ms == -1
    assert times(journals, witness(1, 10, 20), witness(2, 5, 30)) == [[10, 20], [5, 30]]
    assert journals.since_ms == 20


def test_pages_that_ask_for_the_same_share_one_request():
    made: list[int] = []

    async def make() -> dict[str, int]:
        made.append(len(made))
        await asyncio.sleep(0)
        return {"n": len(made)}

    async def work(_: EventHub) -> None:
        answers = RecentAnswers()
        first = await asyncio.gather(*(answers.get("a", make) for _ in range(10)))
        assert first == [{"n": 1}] * 10
        assert await answers.get("b", make) == {"n": 2}
        for entry in answers._entries.values():
            entry.valid_until = 0.0
        assert await answers.get("a", make) == {"n": 3}
        answers.forget()
        assert await answers.get("a", make) == {"n": 4}
        for number in range(2 * ANSWERS_MAX):
            await answers.get(number, make)
            answers._entries[number].valid_until = 0.0
        assert len(answers._entries) <= ANSWERS_MAX

    run(work)


def test_an_error_is_not_kept():
    async def fail() -> dict[str, int]:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "down")

    async def work(_: EventHub) -> None:
        answers = RecentAnswers()
        for _ in range(2):
            with pytest.raises(KafkaError):
                await answers.get("a", fail)

    run(work)


def test_a_request_that_is_refused_twice_is_not_sent_for_a_while():
    timer = RefusalTimer()
    timer.count(0.0, is_refused=True)
    assert timer.is_due(0.0), "one refusal may be of a node that was stopped meanwhile"
    timer.count(1.0, is_refused=True)
    assert not timer.is_due(KEPT_SECONDS)
    assert timer.is_due(1.0 + KEPT_SECONDS)
    timer.count(70.0, is_refused=True)
    assert not timer.is_due(71.0), "it is still refused"
    timer.count(140.0, is_refused=False)
    timer.count(141.0, is_refused=True)
    assert timer.is_due(141.0), "it was served meanwhile"


def test_a_refusal_is_kept_and_an_answer_is_not():
    sent: list[str] = []

    async def ask(answer: str) -> str:
        sent.append(answer)
        return answer

    async def work(_: EventHub) -> None:
        request = UnservedRequest[str](lambda found: found == "refused")
        for answer in ("a", "refused", "b", "refused", "refused"):
            assert await request.get(lambda answer=answer: ask(answer)) == answer
        assert await request.get(lambda: ask("never")) == "refused"
        request._timer._until = 0.0
        assert await request.get(lambda: ask("c")) == "c"
        assert sent == ["a", "refused", "b", "refused", "refused", "c"]

    run(work)


def test_parameters_are_named_if_they_are_missing_or_wrong() -> None:
    read = Parameters({"n": " 7 ", "empty": "", "x": "7x", "at": "12", "big": "9" * 5_000})
    assert (read.number("n"), read.number("none", 3), read.number("empty", 3)) == (7, 3, 3)
    assert (read.at_offset, Parameters({}).at_offset) == (12, -1)
    assert read.numbers("none") == frozenset()
    assert Parameters({"p": "1, 2,1,"}).numbers("p") == {1, 2}
    assert "n" in read
    assert "none" not in read
    with pytest.raises(ValueError, match=r"^none is missing$"):
        read.number("none")
    for name in ("x", "big", "empty"):
        wanted = f"^expected a whole number from -1 to {NUMBER_MAX} for {name}, got "
        with pytest.raises(ValueError, match=wanted) as caught:
            read.number(name)
        assert len(str(caught.value)) < 150
