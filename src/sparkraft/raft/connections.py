"""The peers of a replica: at most one request in flight to each, and a backoff after a failure.

Invariant: a response counts only if its correlation id is the one in flight. `reset` drops all
requests in flight, so that no response to an older state's request is believed in a newer state.
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
class InFlightRequest:
    to: Node
    request: PeerRequest


class Connections:
    """See the module docstring.

    Times are Kafka's `controller.quorum.request.timeout.ms` and `retry.backoff.ms`.
    """

    def __init__(self, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._peers: dict[BrokerId, _Peer] = {}
        self._in_flight: dict[int, InFlightRequest] = {}
        self._next_correlation_id = 0

    def reset(self) -> None:
        """Drop all requests in flight and all backoffs."""
        self._peers.clear()
        self._in_flight.clear()

    def ready_at(self, peer_id: BrokerId, now: Millis) -> Millis:
        """When the next request to the peer may be sent: `now` or later."""
        peer = self._peers.get(peer_id)
        if peer is None:
            return now
        if peer.correlation_id is not None:
            return max(peer.deadline, now)
        return max(peer.backoff_until, now)

    def is_backing_off(self, peer_id: BrokerId, now: Millis) -> bool:
        """Whether the last request to the peer failed less than the retry backoff ago."""
        peer = self._peers.get(peer_id)
        return peer is not None and peer.correlation_id is None and peer.backoff_until > now

    def has_timed_out(self, peer_id: BrokerId, now: Millis) -> bool:
        """Whether the request in flight to the peer is overdue."""
        peer = self._peers.get(peer_id)
        return peer is not None and peer.correlation_id is not None and peer.deadline <= now

    def waits_until(self, now: Millis) -> Millis | None:
        """The latest deadline of all requests in flight; None if nothing is in flight."""
        pending = [p.deadline for p in self._peers.values() if p.correlation_id is not None]
        open_until = [deadline for deadline in pending if deadline > now]
        return max(open_until, default=None)

    def send(self, to: Node, request: PeerRequest, now: Millis) -> Send:
        """Record a request to `to`, which must be ready."""
        peer = self._peers.setdefault(to.id, _Peer())
        if peer.correlation_id is not None:
            self._in_flight.pop(peer.correlation_id, None)
        self._next_correlation_id += 1
        correlation_id = self._next_correlation_id
        peer.correlation_id = correlation_id
        peer.deadline = Millis(now + self._request_timeout_ms)
        self._in_flight[correlation_id] = InFlightRequest(to=to, request=request)
        return Send(
            correlation_id=correlation_id,
            to=to,
            request=request,
            timeout_ms=self._request_timeout_ms,
        )

    def complete(self, correlation_id: int) -> InFlightRequest | None:
        """The request that a response or failure belongs to; None if it no longer counts."""
        in_flight = self._in_flight.pop(correlation_id, None)
        if in_flight is not None:
            self._peers[in_flight.to.id].correlation_id = None
        return in_flight

    def drop(self, peer_id: BrokerId) -> None:
        """Forget an overdue request to the peer."""
        peer = self._peers.pop(peer_id, None)
        if peer is not None and peer.correlation_id is not None:
            self._in_flight.pop(peer.correlation_id, None)

    def back_off(self, peer_id: BrokerId, now: Millis) -> None:
        """Send the peer nothing for the retry backoff."""
        self._peers.setdefault(peer_id, _Peer()).backoff_until = Millis(
            now + self._retry_backoff_ms
        )
