"""The raft events of a whole node as lines of a trace, in the notation of the cores (`trace`).

n2 Follower e=3: …                     a new state, and its reason
n2 persists e=3 leader=n1 voted=n1     the election state on disk
n2 appends …, n2 truncates to LEO=9    its log
n2 sends n1: Fetch…, n2 responds …     its messages; the bytes are in lines of the network
n1* e=3 LEO=12 HW=10                   a new high watermark; the star marks the leader
"""

from collections.abc import Iterator
from typing import Any

from sparkraft.raft import events
from sparkraft.raft.replica import Transition
from sparkraft.simulation.world.trace import tell


def tell_transition(name: str, transition: Transition) -> str:
    """Return a change of state as a line."""
    new = transition.new
    return f"{name} {type(new).__name__} e={new.epoch}: {transition.reason}"


def tell_log(name: str, driver: Any) -> str:
    """Return epoch, LEO and HW of its log as a line."""
    star = "*" if driver.is_leader else ""
    epoch = driver.leader_and_epoch.epoch
    return f"{name}{star} e={epoch} LEO={driver.log_end_offset} HW={driver.high_watermark}"


def tell_ready(name: str, ready: events.Ready) -> Iterator[str]:
    """Yield the effects of `ready` as lines, in the order in which a node carries them out."""
    if ready.persist is not None:
        yield f"{name} persists {_tell_election(ready.persist)}"
    for effect in ready.log:
        yield f"{name} {_tell_effect(effect)}"
    for send in ready.send:
        yield f"{name} sends n{send.to.id}: {tell(send.request)}"
    for respond in ready.respond:
        yield f"{name} responds {tell(respond.response)}"


def _tell_election(election: events.ElectionState) -> str:
    leader = "" if election.leader_id is None else f" leader=n{election.leader_id}"
    voted = "" if election.voted is None else f" voted=n{election.voted.id}"
    return f"e={election.epoch}{leader}{voted}"


def _tell_effect(effect: events.LogEffect) -> str:
    match effect:
        case events.AppendBatch(batch=batch):
            return f"appends {tell(batch)}"
        case events.TruncateTo(offset=offset):
            return f"truncates to LEO={offset}"
        case events.WriteSnapshotChunk(snapshot=snapshot, position=position, chunk=chunk):
            at = f"{snapshot.epoch}@{snapshot.offset}"
            return f"writes {len(chunk)} bytes of snapshot {at} at {position}"
        case events.InstallSnapshot(snapshot=snapshot):
            return f"loads snapshot {snapshot.epoch}@{snapshot.offset}"
