"""One member of a quorum as text: what happens to it, then what it does.

Rewrite the expected parts with `REWRITE_SCENARIOS=1 pytest tests/raft/test_scenarios.py`, then
read the difference.

Commands (the replica is voter 1 unless said otherwise):
    start voters=1,2,3 [id=9] [dynamic] [epoch=E] [leader=L] [voted=V] [log=E*N,E*N] [at=19]
                                   log: N records written in epoch E, one batch a record;
                                   at: where that node would listen, instead of its own place
    restart [at=19]                only what was persisted and flushed survives
    pass MS                        moves the clock; the timer fires at its times
    flush                          what was asked to be flushed is on disk
    vote 2 epoch=5 last=4@10 [pre] [to=1@dir]
    begin 2 epoch=5 | end 2 epoch=5 next=1,3
    fetch 2 epoch=5 at=10 last=4 [hw=9] [wait=500] [dir=2]
    fetch-snapshot 2 epoch=5 id=4@10 at=0
    append N | resign | shutdown | describe
    snapshot E@N [clean]           taken here; `clean` lets the log below go
    granted 2 | rejected 2 | unsupported 2       answers to what it last asked node 2
    records 2 E*N [hw=9]           a Fetch answer of node 2
    diverging 2 E@N | use-snapshot 2 E@N
    chunk 2 E@N size=S from=A to=B
    installed E@N
    ok 2 | error 2 CODE epoch=E [leader=L]
    refused 2 | timed-out 2 | disconnected 2
    add-voter 4 | remove-voter 3 | versions 4 0..1 | update-voter 2 at=12 [epoch=E] [versions=0..1]
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset
from sparkraft.raft import events
from sparkraft.raft.events import (
    ElectionState,
    EpochAndOffset,
    Failure,
    LogBatch,
    QuorumConfig,
    Ready,
)
from sparkraft.raft.log_view import RecoveredLog
from sparkraft.raft.quorum import Quorum
from sparkraft.raft.voters import Node, ReplicaKey, VoterSet, without_directories
from sparkraft.simulation.world.core_node import (
    FIRST_PORT,
    LISTENER,
    directory_of,
    endpoint_of,
    voter_of,
)
from tests.support.scenario_player import check_scenario

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_plays_as_written(path: Path) -> None:
    check_scenario(path, Player)


class NoDice:
    """Timeouts are the shortest possible, so scenarios can be read."""

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)

    def below(self, bound: int) -> int:
        return 0


class Player:
    def __init__(self) -> None:
        self.now = Millis(0)
        self.out: list[str] = []
        self.quorum: Quorum
        self.asked: dict[int, int] = {}
        self.flush_asked: events.Flush | None = None
        self.wake_at: Millis | None = None
        self.names: dict[int, str] = {}
        self.disk: dict[str, Any] = {}
        self.unflushed: list[LogBatch] = []

    def take(self) -> list[str]:
        out, self.out = self.out, []
        return out or ["ok"]

    def run(self, line: str) -> None:
        command, *words = line.split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        getattr(self, "do_" + command.replace("-", "_"))(plain, named)

    # ---- life

    def do_start(self, plain: list[str], named: dict[str, str]) -> None:
        ids = [int(word) for word in named.get("voters", "1,2,3").split(",")]
        local = int(named.get("id", "1"))
        voters = VoterSet.of(voter_of(node_id) for node_id in ids)
        dynamic = "dynamic" in plain
        self.disk = {
            "local": local,
            "static": VoterSet() if dynamic else without_directories(voters),
            "voters": ((Offset(-1), voters),) if dynamic else (),
            "level": ((Offset(-1), 1),) if dynamic else (),
            "snapshots": {events.BOOTSTRAP_SNAPSHOT: 1} if dynamic else {},
            "bootstrap": tuple(
                Node(BrokerId(-1 - i), f"node{i}", 9000 + i)
                for i in ids
                if dynamic or local not in ids
            ),
            "log": [batch for spec in _specs(named.get("log", "")) for batch in spec],
            "election": None,
            "at": int(named.get("at", local)),
        }
        for place, batch in enumerate(self.disk["log"]):
            at = Offset(place)
            self.disk["log"][place] = replace(batch, base_offset=at, last_offset=at)
        if "epoch" in named:
            self.disk["election"] = ElectionState(
                epoch=LeaderEpoch(int(named["epoch"])),
                leader_id=BrokerId(int(named["leader"])) if "leader" in named else None,
                voted=_key(named["voted"]) if "voted" in named else None,
            )
        self._boot()

    def do_restart(self, plain: list[str], named: dict[str, str]) -> None:
        self.disk["at"] = int(named.get("at", self.disk["at"]))
        self._boot()

    def _boot(self) -> None:
        disk = self.disk
        self.unflushed = []
        local = disk["local"]
        epochs: list[tuple[LeaderEpoch, Offset]] = []
        for batch in disk["log"]:
            if not epochs or epochs[-1][0] < batch.epoch:
                epochs.append((batch.epoch, batch.base_offset))
        end = disk["log"][-1].next_offset if disk["log"] else Offset(0)
        self.quorum = Quorum(
            QuorumConfig(
                cluster_id="c",
                local=ReplicaKey(BrokerId(local), directory_of(local)),
                listener=LISTENER,
                endpoints=(endpoint_of(disk["at"]),),
                bootstrap=disk["bootstrap"],
                can_become_voter=local < 9,
            ),
            RecoveredLog(
                end=end,
                epochs=tuple(epochs),
                snapshots=disk["snapshots"],
                voters=(*disk["voters"], *_written(disk["log"], events.VotersChange)),
                kraft_versions=(*disk["level"], *_written(disk["log"], events.KRaftVersionChange)),
            ),
            disk["election"],
            static_voters=disk["static"],
            entropy=NoDice(),
        )
        self._show(self.quorum.start(self.now))

    def _step(self, event: Any) -> None:
        self._show(self.quorum.step(event, self.now))

    # ---- what it does

    def _show(self, ready: Ready) -> None:
        for change in self.quorum.take_transitions():
            old, new = type(change.old).__name__, type(change.new).__name__
            self.out.append(f"{old} => {new} epoch={change.new.epoch}: {_short(change.reason)}")
        if ready.persist is not None:
            self.disk["election"] = ready.persist
            leader, voted = ready.persist.leader_id, ready.persist.voted
            self.out.append(
                f"persist epoch={ready.persist.epoch} leader={leader} "
                f"voted={voted.id if voted else None}"
            )
        for effect in ready.log:
            self._show_log(effect)
        if ready.flush is not None:
            self.flush_asked = ready.flush
            self.out.append(f"flush {ready.flush.up_to}")
        for send in ready.send:
            node = send.to.port - FIRST_PORT
            self.asked[node] = send.correlation_id
            place = (
                _place(send.request) if isinstance(send.request, events.UpdateVoterRequest) else ""
            )
            self.out.append(f"ask {node}: {_message(send.request)}{place}")
        for respond in ready.respond:
            self.out.append(
                f"answer {self.names[respond.request_id]}: {_message(respond.response)}"
            )
        if ready.leader is not None:
            self.out.append(f"leader {ready.leader.leader_id} epoch={ready.leader.epoch}")
        if ready.high_watermark is not None:
            self.out.append(f"HW={ready.high_watermark}")
        self.wake_at = ready.wake_at

    def _show_log(self, effect: events.LogEffect) -> None:
        match effect:
            case events.AppendBatch(batch=batch):
                self.unflushed.append(batch)
                kinds = [type(control).__name__ for control in batch.controls]
                what = " ".join(kinds) or f"{batch.last_offset - batch.base_offset + 1} records"
                self.out.append(f"write {batch.epoch}@{batch.base_offset}: {what}")
            case events.TruncateTo(offset=offset):
                self.unflushed = [b for b in self.unflushed if b.base_offset < offset]
                self.disk["log"] = [b for b in self.disk["log"] if b.base_offset < offset]
                self.out.append(f"cut at {offset}")
            case events.WriteSnapshotChunk():
                self.out.append(f"write {len(effect.chunk)} bytes at {effect.position}")
            case events.InstallSnapshot(snapshot=snapshot):
                self.out.append(f"install {_point(snapshot)}")

    # ---- time and disk

    def do_pass(self, plain: list[str], named: dict[str, str]) -> None:
        end = Millis(self.now + int(plain[0]))
        while self.wake_at is not None and self.wake_at <= end:
            self.now = max(self.wake_at, self.now)
            self._step(events.TimerFired())
        self.now = end

    def do_flush(self, plain: list[str], named: dict[str, str]) -> None:
        asked = self.flush_asked
        assert asked is not None
        self.disk["log"] += self.unflushed
        self.unflushed = []
        self._step(events.LogFlushed(up_to=asked.up_to, generation=asked.generation))

    # ---- requests

    def _request(self, name: str, request: events.Request) -> None:
        number = len(self.names) + 1
        self.names[number] = name
        self._step(events.RequestReceived(request_id=number, request=request))

    def do_vote(self, plain: list[str], named: dict[str, str]) -> None:
        epoch, offset = named["last"].split("@")
        request = events.VoteRequest(
            cluster_id=named.get("cluster", "c"),
            voter=_key(named["to"]) if "to" in named else None,
            candidate=_key(plain[0]),
            epoch=LeaderEpoch(int(named["epoch"])),
            last_epoch=LeaderEpoch(int(epoch)),
            last_offset=Offset(int(offset)),
            pre_vote="pre" in plain,
        )
        self._request(f"vote of {plain[0]}", request)

    def do_begin(self, plain: list[str], named: dict[str, str]) -> None:
        node_id = int(plain[0])
        request = events.BeginQuorumEpochRequest(
            cluster_id=named.get("cluster", "c"),
            voter=_key(named["to"]) if "to" in named else None,
            leader_id=BrokerId(node_id),
            epoch=LeaderEpoch(int(named["epoch"])),
            leader_endpoints=(endpoint_of(node_id),),
        )
        self._request(f"begin of {node_id}", request)

    def do_end(self, plain: list[str], named: dict[str, str]) -> None:
        node_id = int(plain[0])
        request = events.EndQuorumEpochRequest(
            cluster_id="c",
            leader_id=BrokerId(node_id),
            epoch=LeaderEpoch(int(named["epoch"])),
            preferred_successors=tuple(_key(word) for word in named["next"].split(",")),
            leader_endpoints=(endpoint_of(node_id),),
        )
        self._request(f"end of {node_id}", request)

    def do_fetch(self, plain: list[str], named: dict[str, str]) -> None:
        request = events.FetchRequest(
            cluster_id=named.get("cluster", "c"),
            replica=_key(named.get("dir", plain[0]), int(plain[0])),
            epoch=LeaderEpoch(int(named["epoch"])),
            fetch_offset=Offset(int(named["at"])),
            last_fetched_epoch=LeaderEpoch(int(named["last"])),
            high_watermark=Offset(int(named.get("hw", events.LATEST_OFFSET))),
            max_wait_ms=int(named.get("wait", "500")),
        )
        self._request(f"fetch of {plain[0]}", request)

    def do_fetch_snapshot(self, plain: list[str], named: dict[str, str]) -> None:
        request = events.FetchSnapshotRequest(
            cluster_id="c",
            replica=_key(plain[0]),
            epoch=LeaderEpoch(int(named["epoch"])),
            snapshot=_read_point(named["id"]),
            position=int(named["at"]),
            max_bytes=100,
        )
        self._request(f"fetch-snapshot of {plain[0]}", request)

    def do_append(self, plain: list[str], named: dict[str, str]) -> None:
        epoch = named.get("epoch", self.quorum.state.epoch)
        request = events.Append(epoch=LeaderEpoch(int(epoch)), count=int(plain[0]), payload=None)
        self._request("append", request)

    def do_add_voter(self, plain: list[str], named: dict[str, str]) -> None:
        node_id = int(plain[0])
        endpoints = (endpoint_of(node_id),)
        request = events.AddVoterRequest(cluster_id="c", voter=_key(plain[0]), endpoints=endpoints)
        self._request(f"add-voter {node_id}", request)

    def do_remove_voter(self, plain: list[str], named: dict[str, str]) -> None:
        request = events.RemoveVoterRequest(cluster_id="c", voter=_key(plain[0]))
        self._request(f"remove-voter {plain[0]}", request)

    def do_update_voter(self, plain: list[str], named: dict[str, str]) -> None:
        low, high = named.get("versions", "0..1").split("..")
        request = events.UpdateVoterRequest(
            cluster_id="c",
            epoch=self._epoch(named),
            voter=_key(plain[0]),
            endpoints=(endpoint_of(int(named["at"])),),
            min_kraft_version=int(low),
            max_kraft_version=int(high),
        )
        self._request(f"update-voter {plain[0]}", request)

    # ---- its own doings

    def do_resign(self, plain: list[str], named: dict[str, str]) -> None:
        self._step(events.ResignRequested(epoch=self.quorum.state.epoch))

    def do_shutdown(self, plain: list[str], named: dict[str, str]) -> None:
        self._step(events.ShutdownRequested())
        self.out.append(f"may stop: {self.quorum.may_stop}")

    def do_describe(self, plain: list[str], named: dict[str, str]) -> None:
        found = self.quorum.describe(self.now)
        if found is None:
            self.out.append("not the leader")
            return
        for kind, replicas in (("voter", found.voters), ("observer", found.observers)):
            for each in replicas:
                self.out.append(f"{kind} {each.key.id} LEO={each.log_end_offset}")

    def do_snapshot(self, plain: list[str], named: dict[str, str]) -> None:
        point = _read_point(plain[0])
        self._step(events.SnapshotCreated(snapshot=point, size=250))
        if "clean" in plain:
            self._step(events.LogCleaned(log_start_offset=point.offset))

    # ---- answers

    def _answer(self, node_id: str, response: Any) -> None:
        correlation_id = self.asked[int(node_id)]
        self._step(events.ResponseReceived(correlation_id=correlation_id, response=response))

    def do_granted(self, plain: list[str], named: dict[str, str]) -> None:
        response = events.VoteResponse(error=ErrorCode.NONE, epoch=self._epoch(named), granted=True)
        self._answer(plain[0], response)

    def do_rejected(self, plain: list[str], named: dict[str, str]) -> None:
        leader = BrokerId(int(named["leader"])) if "leader" in named else None
        response = events.VoteResponse(
            error=ErrorCode.NONE, epoch=self._epoch(named), leader_id=leader
        )
        self._answer(plain[0], response)

    def do_unsupported(self, plain: list[str], named: dict[str, str]) -> None:
        error = ErrorCode.UNSUPPORTED_VERSION
        self._answer(plain[0], events.VoteResponse(error=error, epoch=self._epoch(named)))

    def _epoch(self, named: dict[str, str]) -> LeaderEpoch:
        return LeaderEpoch(int(named.get("epoch", self.quorum.state.epoch)))

    def _fetched(self, plain: list[str], named: dict[str, str], **given: Any) -> None:
        node_id = int(plain[0])
        response = events.FetchResponse(
            error=ErrorCode.NONE,
            epoch=self._epoch(named),
            leader_id=BrokerId(int(named.get("leader", node_id))),
            leader_endpoints=(endpoint_of(int(named.get("leader", node_id))),),
            high_watermark=Offset(int(named.get("hw", "-1"))),
            **given,
        )
        self._answer(plain[0], response)

    def do_records(self, plain: list[str], named: dict[str, str]) -> None:
        batches = [batch for word in plain[1:] for spec in _specs(word) for batch in spec]
        first = int(named.get("at", self.quorum.log.end))
        numbered = [
            replace(batch, base_offset=Offset(first + i), last_offset=Offset(first + i))
            for i, batch in enumerate(batches)
        ]
        self._fetched(plain, named, batches=tuple(numbered))

    def do_diverging(self, plain: list[str], named: dict[str, str]) -> None:
        self._fetched(plain, named, diverging=_read_point(plain[1]))

    def do_use_snapshot(self, plain: list[str], named: dict[str, str]) -> None:
        self._fetched(plain, named, snapshot=_read_point(plain[1]))

    def do_chunk(self, plain: list[str], named: dict[str, str]) -> None:
        start, end = int(named["from"]), int(named["to"])
        response = events.FetchSnapshotResponse(
            error=ErrorCode.NONE,
            epoch=self._epoch(named),
            leader_id=BrokerId(int(plain[0])),
            leader_endpoints=(endpoint_of(int(plain[0])),),
            snapshot=_read_point(plain[1]),
            size=int(named["size"]),
            position=start,
            chunk=bytes(end - start),
        )
        self._answer(plain[0], response)

    def do_installed(self, plain: list[str], named: dict[str, str]) -> None:
        self._step(events.SnapshotInstalled(snapshot=_read_point(plain[0]), size=250))

    def do_ok(self, plain: list[str], named: dict[str, str]) -> None:
        response = events.QuorumEpochResponse(error=ErrorCode.NONE, epoch=self._epoch(named))
        self._answer(plain[0], response)

    def do_error(self, plain: list[str], named: dict[str, str]) -> None:
        leader = BrokerId(int(named["leader"])) if "leader" in named else None
        response = events.FetchResponse(
            error=ErrorCode[plain[1]],
            epoch=self._epoch(named),
            leader_id=leader,
            leader_endpoints=() if leader is None else (endpoint_of(leader),),
        )
        self._answer(plain[0], response)

    def do_versions(self, plain: list[str], named: dict[str, str]) -> None:
        low, high = plain[1].split("..")
        response = events.ApiVersionsResponse(
            error=ErrorCode.NONE, min_kraft_version=int(low), max_kraft_version=int(high)
        )
        self._answer(plain[0], response)

    def _failed(self, node_id: str, failure: Failure) -> None:
        correlation_id = self.asked[int(node_id)]
        self._step(events.RequestFailed(correlation_id=correlation_id, failure=failure))

    def do_refused(self, plain: list[str], named: dict[str, str]) -> None:
        self._failed(plain[0], Failure.REFUSED)

    def do_timed_out(self, plain: list[str], named: dict[str, str]) -> None:
        self._failed(plain[0], Failure.TIMED_OUT)

    def do_disconnected(self, plain: list[str], named: dict[str, str]) -> None:
        self._failed(plain[0], Failure.DISCONNECTED)


def _key(word: str, node_id: int | None = None) -> ReplicaKey:
    """`2` is node 2 with its first directory, `2.1` the same node after its disk was replaced."""
    number, _, life = word.partition(".")
    chosen = int(number) if node_id is None else node_id
    return ReplicaKey(BrokerId(chosen), directory_of(chosen, int(life or "0")))


def _specs(text: str) -> list[list[LogBatch]]:
    """`1*3,2*1`: three batches of epoch 1, then one of epoch 2."""
    found = []
    for word in filter(None, text.split(",")):
        epoch, count = word.split("*")
        batch = LogBatch(
            base_offset=Offset(0), last_offset=Offset(0), epoch=LeaderEpoch(int(epoch))
        )
        found.append([batch] * int(count))
    return found


def _written(log: list[LogBatch], kind: type[Any]) -> Iterator[tuple[Offset, Any]]:
    """What control records of a kind say, each at its offset: a voter set, or a kraft.version."""
    for batch in log:
        for place, control in enumerate(batch.controls):
            if isinstance(control, kind):
                (said,) = (getattr(control, each.name) for each in fields(control))
                yield Offset(batch.base_offset + place), said


def _place(request: events.UpdateVoterRequest) -> str:
    (endpoint,) = request.endpoints
    return f" at={endpoint.port - FIRST_PORT}"


def _read_point(word: str) -> EpochAndOffset:
    epoch, offset = word.split("@")
    return EpochAndOffset(LeaderEpoch(int(epoch)), Offset(int(offset)))


def _point(point: EpochAndOffset) -> str:
    return f"{point.epoch}@{point.offset}"


def _short(reason: str) -> str:
    return " ".join(word.split("@")[0] for word in reason.split())


_LEFT_OUT = {"cluster_id", "leader_endpoints", "endpoints", "log_start_offset", "max_bytes"}


def _message(message: Any) -> str:
    """Type and fields that say something."""
    parts = [type(message).__name__]
    for each in fields(message):
        value = getattr(message, each.name)
        if each.name in _LEFT_OUT or value in (None, (), "") or value is False:
            continue
        parts.append(f"{each.name}={_value(value)}")
    return " ".join(parts)


def _value(value: Any) -> str:
    match value:
        case ErrorCode():
            return value.name
        case ReplicaKey():
            return str(value.id)
        case EpochAndOffset():
            return _point(value)
        case events.LogRange():
            return f"{value.start}..{value.up_to}"
        case tuple():
            return ",".join(_value(one) for one in value)
        case _:
            return str(value)
