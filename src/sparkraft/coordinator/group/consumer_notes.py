"""Journal entries of consumer groups."""

from collections.abc import Iterable, Sequence

from sparkraft.base.ids import Millis, Uuid
from sparkraft.coordinator.group.consumer_member import ConsumerMember
from sparkraft.coordinator.group.journal import MOVES_MAX, JournalEntry, Kind, Move
from sparkraft.coordinator.steps import PIECE_UNITS, Steps, pieces, sorted_in_steps
from sparkraft.metadata.image import ClusterImage


def noted(
    group_id: str, epoch: int, kind: Kind, reason: str, at_ms: Millis, member_id: str = ""
) -> JournalEntry:
    """An entry without partitions."""
    return JournalEntry(
        at_ms=at_ms,
        group_id=group_id,
        generation=epoch,
        kind=kind,
        reason=reason,
        member_id=member_id,
    )


def about(member: ConsumerMember) -> str:
    """Names the client of a member."""
    instance = f", instance {member.instance_id}" if member.instance_id else ""
    protocol = ", classic protocol" if member.uses_classic_protocol else ""
    return f"client {member.client_id or '-'} at {member.client_host}{instance}{protocol}"


def with_moves(
    entry: JournalEntry,
    moves: Sequence[Move],
    count: int,
    *,
    chosen: str | None = None,
    took_ms: int = -1,
) -> JournalEntry:
    """The entry with its moves, as many as an entry may list; `count` is that of all."""
    return JournalEntry(
        at_ms=entry.at_ms,
        group_id=entry.group_id,
        generation=entry.generation,
        kind=entry.kind,
        reason=entry.reason,
        member_id=entry.member_id,
        chosen=chosen,
        moves=tuple(moves[:MOVES_MAX]),
        move_count=count,
        took_ms=took_ms,
    )


class HandOvers:
    """Partitions on their way between members, of all groups of a shard. Soft state."""

    def __init__(self) -> None:
        self._moving: dict[str, dict[tuple[Uuid, int], tuple[str, str, Millis]]] = {}
        """Group → (topic id, partition) → from, to, when the target was computed."""

    def start(
        self, group_id: str, moves: Iterable[tuple[Uuid, int, str, str]], now_ms: Millis
    ) -> Steps[None]:
        """A new target assignment; earlier moves that it does not change continue."""
        moving = self._moving.setdefault(group_id, {})
        for piece in pieces(moves):
            moving.update(
                ((topic_id, partition), (source, to, now_ms))
                for topic_id, partition, source, to in piece
            )
            yield len(piece) >> 2

    def finished(
        self,
        group_id: str,
        before: ConsumerMember,
        after: ConsumerMember,
        image: ClusterImage,
        now_ms: Millis,
    ) -> Steps[list[Move]]:
        """The moves that end with the partitions `after` has and `before` has not."""
        moving = self._moving.get(group_id)
        moves: list[Move] = []
        if not moving:
            return moves
        units = 0
        for topic_id in (yield from sorted_in_steps(after.assigned)):
            known = before.assigned.get(topic_id, {})
            for partition in sorted(after.assigned[topic_id]):
                found = moving.get((topic_id, partition)) if partition not in known else None
                if found is not None and found[1] == after.member_id:
                    del moving[topic_id, partition]
                    name = topic_name(topic_id, image)
                    moves.append(Move(name, partition, found[0], found[1], now_ms - found[2]))
            units += len(after.assigned[topic_id])
            if units >= PIECE_UNITS:
                yield units
                units = 0
        yield units
        return moves

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._moving.pop(group_id, None)


def topic_name(topic_id: Uuid, image: ClusterImage) -> str:
    """The name of a topic; its id if it was deleted."""
    topic = image.topics_by_id.get(topic_id)
    return str(topic_id) if topic is None else topic.name
