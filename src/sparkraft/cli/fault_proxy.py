"""`fault-proxy`: proxies in front of a cluster's nodes that inject network faults on command.

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

_ABOUT = """Run proxies in front of the nodes of a cluster and inject network faults.

Each node must advertise the LISTEN port of its route, and be listed under it among the voters; a
node may have several routes. Each line of standard input is a command; the proxy prints one line in
response:

  cut A B             hold back all data from A to B; new connections need both directions
  delay A B MS        delay bytes from A to B
  throttle A B BYTES  limit A to B to this many bytes per second
  slice A B BYTES     split data from A to B into pieces of at most this size
  reset A B           reset the connections between A and B
  half-open A B       close B's end of its connections with A without notifying A
  deaf A              cut all nodes to A                 mute A         cut A to all nodes
  apart A,B           cut this group off from the rest   bridge A       two halves linked by A only
  ring                each node reaches two neighbors    majority-ring  each reaches a majority
  heal                remove all faults
  seen                print how often each fault had an effect, as JSON

A and B are names of routes, `client` for any client that is not a node, or * for all of them.
The proxy exits at the end of standard input."""

_COUNTED = {"delay": "delay_ms", "throttle": "bytes_per_second", "slice": "slice_bytes"}
_SYNONYMS = {"mend": "heal"}
"""Older names of commands."""


def main(argv: list[str]) -> int:
    """Run the proxies until the end of standard input."""
    options = Options("fault-proxy", _ABOUT)
    options.values(
        "--route",
        about="a node, the port of its proxy and its own port",
        metavar="NAME=HOST:LISTEN:PORT",
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
                raise CommandError(
                    f"cannot listen on {host}:{listen} for {name}: {error.strerror}"
                ) from error
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(_obeyed(proxy, names, line.split()), flush=True)
    finally:
        await proxy.close()


def _obeyed(proxy: FaultProxy, names: list[str], words: list[str]) -> str:
    """Execute one command and return the response line."""
    if not words:
        return "error: missing command"
    known: dict[str, Callable[[FaultProxy, list[str], list[str]], str]] = {
        "cut": _set,
        **dict.fromkeys(_COUNTED, _set),
        "reset": _end,
        "half-open": _end,
        **dict.fromkeys(("deaf", "mute", "apart", "bridge", "ring", "majority-ring"), _partition),
        "heal": _heal,
        "seen": lambda proxy, _names, _words: json.dumps(proxy.seen),
    }
    work = known.get(_SYNONYMS.get(words[0], words[0]))
    if work is None:
        return f"error: unknown command {words[0]}, expected one of {', '.join(known)}"
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


def _heal(proxy: FaultProxy, _names: list[str], _words: list[str]) -> str:
    proxy.heal()
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
            raise ValueError("invalid arguments")
    proxy.cut(pairs)
    return "ok"
