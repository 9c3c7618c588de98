"""Broker sessions: when each broker last sent a heartbeat, and how much metadata it has read.

Soft state of the active controller. Decisions depend on it; the image never does. A new controller
gives every unfenced broker a full session timeout before it fences it.
"""

from dataclasses import dataclass, field

from sparkraft.base.ids import Millis, Offset
from sparkraft.metadata.image import ClusterImage

_OFFSET_MAX = (1 << 63) - 1


@dataclass(slots=True)
class Sessions:
    """The sessions of one controller, by broker id and broker epoch."""

    timeout_ms: int
    """Use: `broker.session.timeout.ms`; a session is valid for exactly this long (inclusive)."""
    contact_ms: dict[tuple[int, int], Millis] = field(default_factory=dict)
    """Use: time of the last contact by (broker id, broker epoch), to expire sessions.
    Invariant: empty while this controller is not active."""
    metadata_offset: dict[int, int] = field(default_factory=dict)
    """Use: metadata offset of a broker's last heartbeat, to end controlled shutdowns."""
    registered_at: dict[int, Offset] = field(default_factory=dict)
    """Use: offset of a broker's newest registration record; caught up means having read it."""
    shutdown_offset: dict[int, int] = field(default_factory=dict)
    """Use: the image's offset when a broker in controlled shutdown led nothing any more."""

    def activate(self, image: ClusterImage, now: Millis, *, local_broker: int | None) -> None:
        """Start a session for every unfenced broker.

        `local_broker` is the broker of this process. It gets none: its earlier incarnation has
        certainly stopped, and a session would only delay the restart.
        """
        self.contact_ms.clear()
        self.metadata_offset.clear()
        self.shutdown_offset.clear()
        for broker_id in sorted(image.brokers):
            broker = image.brokers[broker_id]
            if not broker.fenced and broker_id != local_broker:
                self.contact_ms[broker_id, broker.epoch] = now

    def touch(self, broker_id: int, epoch: int, now: Millis) -> None:
        """Start or renew a session."""
        self.contact_ms[broker_id, epoch] = now

    def valid(self, broker_id: int, epoch: int, now: Millis) -> bool:
        """Whether the session exists and has not expired."""
        last = self.contact_ms.get((broker_id, epoch))
        return last is not None and now - last <= self.timeout_ms

    def last_contact(self, broker_id: int, epoch: int) -> Millis | None:
        """Time of the last heartbeat, or of this controller's activation if none came since."""
        return self.contact_ms.get((broker_id, epoch))

    def expired(self, now: Millis) -> list[tuple[int, int]]:
        """Broker ids and epochs of expired sessions, the one that expired first at the front."""
        silent = sorted(
            (last, key) for key, last in self.contact_ms.items() if now - last > self.timeout_ms
        )
        return [key for _, key in silent]

    def end(self, broker_id: int) -> None:
        """End every session of a broker."""
        for key in [key for key in self.contact_ms if key[0] == broker_id]:
            del self.contact_ms[key]
        self.shutdown_offset.pop(broker_id, None)

    def lowest_active_offset(self, image: ClusterImage) -> int:
        """Lowest metadata offset among the active brokers; 2^63 - 1 if there are none."""
        return min(
            (
                self.metadata_offset.get(broker_id, -1)
                for broker_id in sorted(image.brokers)
                if image.brokers[broker_id].active
            ),
            default=_OFFSET_MAX,
        )
