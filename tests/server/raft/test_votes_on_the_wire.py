"""Vote byte by byte over a socket: what each version carries, and what counts of it.

The bytes stand here as the specification has them, so that neither our codec nor our client is
between them and the node.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sparkraft.base.ids import Uuid
from tests.server.raft.test_driver import WAIT_SECONDS_MAX, Member, run
from tests.support.ports import lasting_ports

OURS = Uuid(bytes([7] * 15 + [1]))
"""The directory of `Member` 1."""
THEIRS, ANOTHER = Uuid(b"t" * 16), Uuid(b"a" * 16)

TOPIC = b"\x02" + b"\x13__cluster_metadata" + b"\x02"
"""One topic with one partition."""
NO_TAGS = b"\x00"
NO_ERROR, INVALID_VOTER_KEY = 0, 125


def i16(number: int) -> bytes:
    return number.to_bytes(2, "big", signed=True)


def i32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def header(key: int, version: int) -> bytes:
    return i16(key) + i16(version) + i32(77) + i16(4) + b"test" + NO_TAGS


def vote_v0(epoch: int, candidate: int) -> bytes:
    """Of a candidate whose log is empty; nobody says which directory is meant."""
    return b"".join(
        [
            header(52, 0),
            b"\x00",  # any cluster
            TOPIC,
            i32(0),  # the partition
            i32(epoch),
            i32(candidate),
            i32(0),  # the last epoch of its log
            bytes(8),  # and its end
            NO_TAGS * 3,
        ]
    )


def vote_v1(epoch: int, candidate: int, its: Uuid, voter: int, whose: Uuid) -> bytes:
    """The same with the keys of both: node and directory."""
    return b"".join(
        [
            header(52, 1),
            b"\x00",
            i32(voter),
            TOPIC,
            i32(0),
            i32(epoch),
            i32(candidate),
            bytes(its),
            bytes(whose),
            i32(0),
            bytes(8),
            NO_TAGS * 3,
        ]
    )


def begin_v1(epoch: int, leader: int, port: int) -> bytes:
    """BeginQuorumEpoch: a leader makes itself known, and where it listens."""
    return b"".join(
        [
            header(53, 1),
            b"\x00",
            i32(-1),  # any voter
            TOPIC,
            i32(0),
            bytes(16),
            i32(leader),
            i32(epoch),
            NO_TAGS * 2,
            b"\x02" + b"\x0bCONTROLLER" + b"\x0a127.0.0.1" + port.to_bytes(2, "big") + NO_TAGS,
            NO_TAGS,
        ]
    )


def answered(error: int, leader: int, epoch: int, *, granted: bool, tags: bytes = NO_TAGS) -> bytes:
    """The answer to a Vote, its header included."""
    return b"".join(
        [
            i32(77),
            NO_TAGS,
            i16(0),  # nothing is wrong with the request as a whole
            TOPIC,
            i32(0),
            i16(error),
            i32(leader),
            i32(epoch),
            bytes([granted]),
            NO_TAGS * 2,
            tags,
        ]
    )


def endpoint(node_id: int, port: int) -> bytes:
    """Tag 0 of an answer from v1 on: where the leader listens."""
    nodes = b"\x02" + i32(node_id) + b"\x0a127.0.0.1" + port.to_bytes(2, "big") + NO_TAGS
    return b"\x01" + b"\x00" + bytes([len(nodes)]) + nodes


Ask = Callable[[bytes], Awaitable[bytes]]


@asynccontextmanager
async def a_voter_alone(root: Path) -> AsyncIterator[Ask]:
    """Voter 1 of three, of which no other runs; what it answers on one connection."""
    patient = {"controller_quorum_election_timeout_ms": 600_000}
    member = Member(1, lasting_ports(3), root, **patient)
    await member.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", member.port)

    async def ask(request: bytes) -> bytes:
        writer.write(i32(len(request)) + request)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            size = int.from_bytes(await reader.readexactly(4), "big")
            return await reader.readexactly(size)

    try:
        yield ask
    finally:
        writer.close()
        await member.stop()
        assert not member.failures


def test_version_0_knows_candidates_by_their_ids_alone(tmp_path: Path) -> None:
    async def work() -> None:
        async with a_voter_alone(tmp_path) as ask:
            given = answered(NO_ERROR, -1, 5, granted=True)
            assert await ask(vote_v0(5, candidate=2)) == given
            assert await ask(vote_v0(5, candidate=3)) == answered(NO_ERROR, -1, 5, granted=False)
            assert await ask(vote_v0(5, candidate=2)) == given, "the same one may ask again"
            named = vote_v1(5, 2, THEIRS, voter=1, whose=OURS)
            assert await ask(named) == given, "and tell its directory, which nobody knew"

    run(work)


def test_version_1_knows_both_by_their_directories_too(tmp_path: Path) -> None:
    async def work() -> None:
        async with a_voter_alone(tmp_path) as ask:
            given = answered(NO_ERROR, -1, 6, granted=True)
            refused = answered(NO_ERROR, -1, 6, granted=False)
            not_meant = answered(INVALID_VOTER_KEY, -1, 6, granted=False)
            assert await ask(vote_v1(6, 3, THEIRS, voter=2, whose=OURS)) == not_meant
            assert await ask(vote_v1(6, 3, THEIRS, voter=1, whose=ANOTHER)) == not_meant
            assert await ask(vote_v1(6, 3, THEIRS, voter=1, whose=OURS)) == given
            assert await ask(vote_v1(6, 3, ANOTHER, voter=1, whose=OURS)) == refused
            assert await ask(vote_v1(6, 3, THEIRS, voter=1, whose=Uuid.ZERO)) == given, "any"
            assert await ask(vote_v1(6, 3, THEIRS, voter=1, whose=OURS)) == given

    run(work)


def test_where_the_leader_listens_is_told_from_version_1_on(tmp_path: Path) -> None:
    async def work() -> None:
        (port,) = lasting_ports(1)  # nobody listens there
        async with a_voter_alone(tmp_path) as ask:
            await ask(begin_v1(7, leader=2, port=port))
            refused = answered(NO_ERROR, 2, 7, granted=False)
            assert await ask(vote_v0(7, candidate=3)) == refused
            there = answered(NO_ERROR, 2, 7, granted=False, tags=endpoint(2, port))
            assert await ask(vote_v1(7, 3, THEIRS, voter=1, whose=OURS)) == there

    run(work)
