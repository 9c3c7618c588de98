"""`fault-proxy`: a proxy before each node of a cluster, told on standard input what to break.

sparkraft fault-proxy --route 1=127.0.0.1:19092:29092 --route 2=127.0.0.1:19093:29093
cut 1 2
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparkraft.testing.fault_proxy import FaultProxy

_ABOUT = """Stands before the nodes of a cluster and breaks the network between them.

Each node advertises, and is named among the voters by, the LISTEN port of its route; a node may
have several. Then every line of standard input is a command, answered by a line:

  cut A B             nothing passes from A to B; a new connection needs both directions
  delay A B MS        bytes from A to B arrive that much later
  throttle A B BYTES  a second, from A to B
  slice A B BYTES     at most, a piece
  reset A B           reset the connections between the two
  half-open A B       B loses its connections with A, and A hears nothing of it
  deaf A              A is heard and hears nobody        mute A   the other way round
  apart A,B           these can't speak with the others  bridge A two halves that see only A
  ring                everyone sees two neighbours       majority-ring   or just a majority
  mend                all is well again
  seen                how often each fault met anything, as JSON

A and B are names of routes, `client` for those who are no node, or * for all of them.
The end of standard input ends the proxy."""

_COUNTED = {"delay": "delay_ms", "throttle": "bytes_per_second", "slice": "slice_bytes"}


def main(argv: list[str]) -> int:
    """Proxy until standard input ends."""
    options = Options("fault-proxy", _ABOUT)
    options.values(
        "--route", about="a node, the port before it, and its own", metavar="NAME=HOST:LISTEN:PORT"
    )
    values = options.parse(argv)
    if not values.route:
        raise UsageError("missing --route")
    asyncio.run(_serve([_route(text) for text in values.route]))
    return 0


def _route(text: str) -> tuple[str, str, int, int]:
    name, _, place = text.partition("=")
    host, _, ports = place.partition(":")
    listen, _, target = ports.partition(":")
    if not (name and host and listen.isdigit() and target.isdigit()):
        raise UsageError(f"--route is NAME=HOST:LISTEN:PORT, not {text!r}")
    return name, host, int(listen), int(target)


async def _serve(routes: Sequence[tuple[str, str, int, int]]) -> None:
    from sparkraft.testing.fault_proxy import FaultProxy

    proxy = FaultProxy()
    names = sorted({name for name, *_ in routes})
    try:
        for name, host, listen, target in routes:
            try:
                await proxy.route(name, host=host, listen_port=listen, target_port=target)
            except OSError as error:
                raise CommandError(f"{host}:{listen} before {name}: {error.strerror}") from error
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(_obeyed(proxy, names, line.split()), flush=True)
    finally:
        await proxy.close()


def _obeyed(proxy: FaultProxy, names: list[str], words: list[str]) -> str:
    """Do what a line says; the answer to it."""
    if not words:
        return "error: nothing said"
    known: dict[str, Callable[[FaultProxy, list[str], list[str]], str]] = {
        "cut": _set,
        **dict.fromkeys(_COUNTED, _set),
        "reset": _end,
        "half-open": _end,
        **dict.fromkeys(("deaf", "mute", "apart", "bridge", "ring", "majority-ring"), _partition),
        "mend": _mend,
        "seen": lambda proxy, _names, _words: json.dumps(proxy.seen),
    }
    work = known.get(words[0])
    if work is None:
        return f"error: {words[0]} is none of {', '.join(known)}"
    try:
        return work(proxy, names, words)
    except (ValueError, IndexError) as error:
        return f"error: {' '.join(words)}: {error}"


def _ends(names: list[str], words: list[str]) -> list[tuple[str, str]]:
    def meant(word: str) -> list[str]:
        if word == "*":
            return [*names, "client"]
        if word not in {*names, "client"}:
            raise ValueError(f"{word} has no route")
        return [word]

    pairs = [(a, b) for a in meant(words[1]) for b in meant(words[2])]
    return [(a, b) for a, b in pairs if a != b]


def _mend(proxy: FaultProxy, _names: list[str], _words: list[str]) -> str:
    proxy.mend()
    return "ok"


def _set(proxy: FaultProxy, names: list[str], words: list[str]) -> str:
    pairs = _ends(names, words)
    if words[0] == "cut":
        proxy.cut(pairs)
        return "ok"
    value = int(words[3])
    for origin, target in pairs:
        proxy.link(origin, target).set(**{_COUNTED[words[0]]: value})
    return "ok"


def _end(proxy: FaultProxy, names: list[str], words: list[str]) -> str:
    work = proxy.reset if words[0] == "reset" else proxy.half_open
    return f"ok {sum(work(a, b) for a, b in _ends(names, words))}"


def _partition(proxy: FaultProxy, names: list[str], words: list[str]) -> str:
    from sparkraft.testing import partitions

    match words:
        case ["apart", group]:
            pairs = partitions.apart(group.split(","), names)
        case ["ring"]:
            pairs = partitions.ring(names)
        case ["majority-ring"]:
            pairs = partitions.majority_ring(names)
        case [("deaf" | "mute" | "bridge") as kind, node] if node in names:
            pairs = getattr(partitions, kind)(node, names)
        case _:
            raise ValueError("it is not said so")
    proxy.cut(pairs)
    return "ok"
