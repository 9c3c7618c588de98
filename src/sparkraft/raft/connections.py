"""Which peers may be asked now: one request in flight each, a pause after a failure.

Invariant: an answer is taken only if its correlation id is the one in flight; `reset` makes all
answers of the past unwanted, so nothing asked in an older state is believed in a newer one.
"""

from dataclasses import dataclass

from sparkraft.base.ids import BrokerId, Millis
from sparkraft.raft.events import PeerRequest, Send
from sparkraft.raft.voters import Node

_LONG_AGO = Millis(-(1 << 62))


@dataclass(slots=True)
class _Peer:
    correlation_id: int | None = None
    deadline: Millis = _LONG_AGO
    backoff_until: Millis = _LONG_AGO


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that was sent."""

    to: Node
    request: PeerRequest


class Connections:
    """The peers of one replica."""

    def __init__(self, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        """Times are Kafka's `controller.quorum.request.timeout.ms` and `retry.backoff.ms`."""
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._peers: dict[BrokerId, _Peer] = {}
        self._asked: dict[int, Asked] = {}
        self._next_correlation_id = 0

    def reset(self) -> None:
        """Forget all that is in flight and all pauses."""
        self._peers.clear()
        self._asked.clear()

    def ready_at(self, peer_id: BrokerId, now: Millis) -> Millis:
        """When the peer may be asked: `now` or later."""
        peer = self._peers.get(peer_id)
        if peer is None:
            return now
        if peer.correlation_id is not None:
            return max(peer.deadline, now)
        return max(peer.backoff_until, now)

    def is_backing_off(self, peer_id: BrokerId, now: Millis) -> bool:
        """Whether the peer failed us a moment ago."""
        peer = self._peers.get(peer_id)
        return peer is not None and peer.correlation_id is None and peer.backoff_until > now

    def has_timed_out(self, peer_id: BrokerId, now: Millis) -> bool:
        """Whether the request in flight to the peer is overdue."""
        peer = self._peers.get(peer_id)
        return peer is not None and peer.correlation_id is not None and peer.deadline <= now

    def waits_until(self, now: Millis) -> Millis | None:
        """When the last request in flight is overdue; None where nothing is in flight."""
        pending = [p.deadline for p in self._peers.values() if p.correlation_id is not None]
        open_until = [deadline for deadline in pending if deadline > now]
        return max(open_until, default=None)

    def send(self, to: Node, request: PeerRequest, now: Millis) -> Send:
        """Note a request to `to`, which must be ready."""
        peer = self._peers.setdefault(to.id, _Peer())
        if peer.correlation_id is not None:
            self._asked.pop(peer.correlation_id, None)
        self._next_correlation_id += 1
        correlation_id = self._next_correlation_id
        peer.correlation_id = correlation_id
        peer.deadline = Millis(now + self._request_timeout_ms)
        self._asked[correlation_id] = Asked(to=to, request=request)
        return Send(
            correlation_id=correlation_id,
            to=to,
            request=request,
            timeout_ms=self._request_timeout_ms,
        )

    def take(self, correlation_id: int) -> Asked | None:
        """An answer came: what it answers, None where it is no longer wanted."""
        asked = self._asked.pop(correlation_id, None)
        if asked is not None:
            self._peers[asked.to.id].correlation_id = None
        return asked

    def drop(self, peer_id: BrokerId) -> None:
        """Forget an overdue request to the peer."""
        peer = self._peers.pop(peer_id, None)
        if peer is not None and peer.correlation_id is not None:
            self._asked.pop(peer.correlation_id, None)

    def back_off(self, peer_id: BrokerId, now: Millis) -> None:
        """Leave the peer alone for a moment."""
        self._peers.setdefault(peer_id, _Peer()).backoff_until = Millis(
            now + self._retry_backoff_ms
        )
