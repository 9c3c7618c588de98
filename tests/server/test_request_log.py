"""The request log: slow requests, and every request while its logger is at DEBUG."""

import logging
from types import SimpleNamespace

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.log_levels import SET, apply_changes
from sparkraft.server.loop_monitor import LOGGED_EACH_MS
from sparkraft.server.network.request_log import SLOW_MS, RequestLog
from tests.server.harness import append, batch, connect, create_topic, node_in, run, until
from tests.server.test_loop_turns import Clock

CONTEXT = SimpleNamespace(
    correlation_id=7, client_id="app\n", principal="User:app", connection_id="a:1-b:2-3"
)


def route_of(key: ApiKey) -> SimpleNamespace:
    return SimpleNamespace(api=SimpleNamespace(key=key), version=9)


def test_slow_requests_are_logged_once_a_second(caplog):
    clock = Clock()
    log = RequestLog(clock)
    produce = route_of(ApiKey.PRODUCE)
    log.on_response(produce, CONTEXT, 0, 0, SLOW_MS - 1)
    assert caplog.messages == []
    for _ in range(3):
        log.on_response(produce, CONTEXT, 10, 20, SLOW_MS)
    assert caplog.messages == [
        "Slow request: PRODUCE v9 correlation 7 of client 'app\\n' as User:app on a:1-b:2-3 took "
        "1030 ms: queue 10, local 20, remote 1000"
    ]
    clock.now += LOGGED_EACH_MS
    log.on_response(produce, CONTEXT, 0, 0, SLOW_MS)
    assert caplog.messages[1].endswith("; 2 more since the last line")


def test_long_polls_and_joins_are_not_slow(caplog):
    log = RequestLog(Clock())
    for key in (ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP):
        log.on_response(route_of(key), CONTEXT, 0, 0, 10 * SLOW_MS)
    assert caplog.messages == []


def test_at_debug_every_request_has_a_line(tmp_path, caplog):
    def set_level(level: str) -> None:
        change = SimpleNamespace(name="kafka.request.logger", config_operation=SET, value=level)
        apply_changes(1, "1", [change], validate_only=False)

    def lines() -> list[str]:
        return [text for text in caplog.messages if text.startswith("Completed PRODUCE")]

    async def test() -> None:
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic = await create_topic(client, "orders")
            listener = node.listeners[0]
            for _ in range(3):
                await append(client, topic, batch(b"x"))
            assert lines() == []
            set_level("DEBUG")
            listener.request_log.refresh()
            for _ in range(3):
                await append(client, topic, batch(b"x"))
            assert len(lines()) == 3
            assert " of client 'test' as User:ANONYMOUS on " in lines()[0]
            set_level("INFO")
            await until(lambda: not listener.request_log.is_on)
            await append(client, topic, batch(b"x"))
            assert len(lines()) == 3
            await client.close()

    try:
        run(test())
    finally:
        logging.getLogger("sparkraft.request").setLevel(logging.NOTSET)
