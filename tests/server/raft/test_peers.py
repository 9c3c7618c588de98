"""Connections to other members: silence ends a request as a failure, and its connection with it;
what a member is too old for is not asked of it.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import BrokerId, LeaderEpoch, Offset
from sparkraft.client.connection import Connection
from sparkraft.protocol import codec
from sparkraft.protocol.messages import k52_vote as k52
from sparkraft.protocol.messages.k18_api_versions import ApiVersion
from sparkraft.raft import events
from sparkraft.raft.voters import Node, ReplicaKey
from sparkraft.server.raft.peers import Peers
from sparkraft.storage.names import METADATA_TOPIC
from tests.client.test_connection import Peer, api, serving
from tests.server.raft.test_driver import Member, run, until
from tests.support.ports import lasting_ports

WAIT_SECONDS_MAX = 60


class DeafConnection:
    """Takes requests and never answers."""

    is_closed = False

    def version_for(self, key: Any) -> int:
        return 0

    async def send(self, message: Any, **_: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    def abort(self, reason: str) -> None:
        self.is_closed = True


def test_a_peer_that_says_nothing_is_a_timeout_and_is_connected_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[DeafConnection] = []
    outcomes: list[Any] = []

    async def open_deaf(*_: Any, **__: Any) -> DeafConnection:
        opened.append(DeafConnection())
        return opened[-1]

    async def ask_twice() -> None:
        told = asyncio.Event()

        def on_outcome(event: Any) -> None:
            outcomes.append(event)
            told.set()

        peers = Peers("CONTROLLER", "test", on_outcome)
        for correlation_id in (1, 2):
            told.clear()
            request = events.BeginQuorumEpochRequest(
                cluster_id=None, voter=None, leader_id=BrokerId(1), epoch=LeaderEpoch(1)
            )
            node = Node(BrokerId(2), "nobody", 9093)
            peers.send(
                events.Send(correlation_id=correlation_id, to=node, request=request, timeout_ms=1)
            )
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await told.wait()
        await peers.close()

    monkeypatch.setattr(Connection, "open", open_deaf)
    asyncio.run(ask_twice())
    assert [event.failure for event in outcomes] == [events.Failure.TIMED_OUT] * 2
    assert len(opened) == 2
    assert all(connection.is_closed for connection in opened)


API_VERSIONS, FETCH, VOTE = 18, 1, 52


class OldVoter:
    """Grants every vote, and serves what it says it does; `asked` are (key, version, epoch)."""

    def __init__(self, *served: ApiVersion) -> None:
        self.served = [api(API_VERSIONS, 0, 4), *served]
        self.asked: list[tuple[int, int, int]] = []
        self.connections = 0

    async def serve(self, peer: Peer) -> None:
        self.connections += 1
        try:
            await peer.answer_versions(self.served)
            while True:
                await self._answer(peer)
        finally:
            self.connections -= 1

    async def _answer(self, peer: Peer) -> None:
        length = int.from_bytes(await peer.reader.readexactly(4), "big")
        frame = await peer.reader.readexactly(length)
        key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (0, 2))
        assert key == VOTE, "nothing else is served"
        behind_header = 8 + 2 + int.from_bytes(frame[8:10], "big") + 1
        request = codec.decode(k52.VoteRequest, version, frame[behind_header:])
        epoch = request.topics[0].partitions[0].replica_epoch
        self.asked.append((key, version, epoch))
        body = codec.encode(_granted(epoch), version)
        peer.writer.write(peer.answer(int.from_bytes(frame[4:8], "big"), body, flexible=True))


def _granted(epoch: int) -> k52.VoteResponse:
    data = k52.VoteResponsePartitionData(
        partition_index=0, error_code=0, leader_id=-1, leader_epoch=epoch, vote_granted=True
    )
    topic = k52.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[data])
    return k52.VoteResponse(topics=[topic])


def vote(*, pre_vote: bool) -> events.VoteRequest:
    return events.VoteRequest(
        cluster_id=None,
        voter=None,
        candidate=ReplicaKey(BrokerId(1)),
        epoch=LeaderEpoch(5),
        last_epoch=LeaderEpoch(4),
        last_offset=Offset(9),
        pre_vote=pre_vote,
    )


FETCHES = events.FetchRequest(
    cluster_id=None,
    replica=ReplicaKey(BrokerId(1)),
    epoch=LeaderEpoch(5),
    fetch_offset=Offset(9),
    last_fetched_epoch=LeaderEpoch(4),
)
TOO_OLD_TO_VOTE = events.VoteResponse(
    error=ErrorCode.UNSUPPORTED_VERSION, epoch=LeaderEpoch(5), granted=False
)
TOO_OLD = events.Refusal(error=ErrorCode.UNSUPPORTED_VERSION)
GRANTED = events.VoteResponse(error=ErrorCode.NONE, epoch=LeaderEpoch(5), granted=True)


@pytest.mark.parametrize(
    ("served", "answers", "reaches_it"),
    [
        pytest.param([], [TOO_OLD_TO_VOTE, TOO_OLD_TO_VOTE, TOO_OLD], [], id="knows no quorum"),
        pytest.param(
            [api(VOTE, 0, 1), api(FETCH, 4, 11)],
            [TOO_OLD_TO_VOTE, GRANTED, TOO_OLD],
            [(VOTE, 1, 5)],
            id="knows no pre-vote and no fetch of a quorum",
        ),
        pytest.param(
            [api(VOTE, 0, 2)],
            [GRANTED, GRANTED, TOO_OLD],
            [(VOTE, 2, 5), (VOTE, 2, 5)],
            id="knows all of votes",
        ),
    ],
)
def test_what_a_peer_is_too_old_for_is_answered_here_and_not_sent(
    served: list[ApiVersion],
    answers: list[events.PeerResponse],
    reaches_it: list[tuple[int, int, int]],
) -> None:
    old, outcomes = OldVoter(*served), list[Any]()
    requests: list[events.PeerRequest] = [vote(pre_vote=True), vote(pre_vote=False), FETCHES]

    def on_outcome(event: Any) -> None:
        outcomes.append(event.response)

    async def ask_each() -> None:
        peers = Peers("CONTROLLER", "test", on_outcome)
        async with serving(old.serve) as port:
            to = Node(BrokerId(2), "127.0.0.1", port)
            for number, request in enumerate(requests, 1):
                peers.send(
                    events.Send(correlation_id=number, to=to, request=request, timeout_ms=60_000)
                )
                await until(lambda: len(outcomes) == number)  # noqa: B023 (awaited right here)
            await peers.close()
            await until(lambda: not old.connections)

    asyncio.run(ask_each())
    assert outcomes == answers
    assert old.asked == reaches_it


def test_a_voter_that_knows_no_pre_vote_is_asked_for_its_vote_instead(tmp_path: Path) -> None:
    """KIP-996: the replica goes on as a candidate."""
    old, steps = OldVoter(api(VOTE, 0, 1)), dict[str, str]()

    async def work() -> None:
        async with serving(old.serve) as port:
            ports = [*lasting_ports(1), port]
            member = Member(1, ports, tmp_path, controller_quorum_election_timeout_ms=200)
            await member.start()

            def leads() -> bool:
                steps.update((each.kind, each.reason) for each in member.driver.journal.entries())
                return "leader" in steps

            await until(leads)
            await member.stop()
            await until(lambda: not old.connections)
        assert not member.failures

    run(work)
    assert steps["candidate"] == "2 does not support pre-votes"
    assert steps["leader"] == "votes of 1, 2"
    assert {(key, version) for key, version, _ in old.asked} == {(VOTE, 1)}
