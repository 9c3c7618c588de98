"""CPU time of the counters on Produce's path, in a loop of a million requests.

The loop consists of the product's own statements: those that add to an attribute in the functions
that each request passes (`COUNTING`), and the calls that count its times. They act on the real
objects; everything else that a request costs is left out, and so is the time of an empty loop.

A client with one request in flight is the worst case: `_count_handled` then runs for each request,
and otherwise once for all requests of a received chunk.
"""

import ast
import inspect
import textwrap
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.report import Row
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.api.registry import RequestContext
from sparkraft.server.broker.partition import HostedPartition
from sparkraft.server.network.connection import Connection
from sparkraft.server.network.dispatch import Routes
from sparkraft.server.network.responses import PendingResponse
from sparkraft.storage.log import AppendInfo

CALLS = 1_000_000
ROUNDS = 5
LIMIT_US = 0.5
WAIT_MS = 3

COUNTING: tuple[tuple[str, Callable[..., Any], frozenset[str]], ...] = (
    ("connection", vars(Connection)["_dispatch"], frozenset({"requests", "_route_requests"})),
    ("partition", HostedPartition.append, frozenset({"appends", "bytes_in", "messages_in"})),
)
"""What `self` is called in the loop, the function, and the attributes that it adds to."""

AT_ONCE = ["connection._count_handled(0)"]
"""After a response that follows at once."""

LATER = ["connection.take_wait()", "slot.count(now_ms, None)", *AT_ONCE]
"""After one that had to wait, for replication or an fsync."""


def additions(function: Callable[..., Any]) -> dict[str, str]:
    """Attribute of `self` → the statement of `function` that adds to it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return {
        node.target.attr: ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.target, ast.Attribute)
        and isinstance(node.target.value, ast.Name)
        and node.target.value.id == "self"
    }


def counting_statements() -> list[str]:
    """The statements of `COUNTING`, for the loop; an error if the product has others now."""
    statements = []
    for name, function, attributes in COUNTING:
        found = additions(function)
        assert found.keys() == attributes, f"{function.__qualname__} counts {sorted(found)}"
        statements += [text.replace("self.", f"{name}.") for text in found.values()]
    return statements


def loop_of(statements: list[str]) -> Callable[..., None]:
    """A function that executes them `count` times."""
    lines = ["def loop(count, connection, partition, slot, info, size, now_ms):"]
    lines += [" for _ in range(count):", *(f"  {one}" for one in statements or ["pass"])]
    found: dict[str, Any] = {}
    exec("\n".join(lines), found)
    loop: Callable[..., None] = found["loop"]
    return loop


def objects() -> tuple[Any, ...]:
    """What the statements act on: a client's connection and a partition that is led here."""
    route = Routes(controller_listener=False).find(ApiKey.PRODUCE, 9)
    assert route is not None
    connection = Connection.__new__(Connection)
    state = {"requests": 0, "_route": route, "_route_requests": 0, "_queue_ms": 0, "_handled": []}
    for name, value in state.items():
        setattr(connection, name, value)
    partition = HostedPartition.__new__(HostedPartition)
    partition.appends = partition.bytes_in = partition.messages_in = 0
    nothing: Any = None
    context = RequestContext(
        ApiKey.PRODUCE, 9, 1, "bench", session=nothing, connection=connection, received_ms=0
    )
    slot = PendingResponse(route, context, None)
    info = AppendInfo(0, 0, -1, 0, duplicate=False, needs_fsync=False)
    return connection, partition, slot, info, 168, WAIT_MS


def cpu_us(statements: list[str]) -> float:
    """CPU time of one execution, in µs: the median of `ROUNDS`."""

    def spent(loop: Callable[..., None]) -> float:
        begun = time.thread_time()
        loop(CALLS, *objects())
        return (time.thread_time() - begun) / CALLS * 1e6

    full, empty = loop_of(statements), loop_of([])
    return median(spent(full) - spent(empty) for _ in range(ROUNDS))


def produce_counters() -> list[Row]:
    """A request whose response follows at once, and one that waits for its followers."""
    counting = counting_statements()
    cases = {"at once": [*counting, *AT_ONCE], "later": [*counting, *LATER]}
    costs = {what: cpu_us(statements) for what, statements in cases.items()}
    return [
        Row(
            f"counters of a Produce request, response {what}: CPU in 10^6 calls",
            f"{us:.2f} µs",
            f"limit {LIMIT_US} µs",
            us / LIMIT_US,
            at_most=1,
        )
        for what, us in costs.items()
    ]
