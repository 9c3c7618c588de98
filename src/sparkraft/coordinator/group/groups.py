"""The groups of a shard by id."""

from collections.abc import Iterator

from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.foreign import ForeignGroup
from sparkraft.coordinator.group.group import Group


class Groups(dict[str, Group]):
    """Groups of every protocol. The protocols find their own kind here, and no other."""

    def classic(self, group_id: str) -> ClassicGroup | None:
        """The classic group of that id; None if there is none or it uses another protocol."""
        group = self.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def all_classic(self) -> Iterator[ClassicGroup]:
        """Every classic group, in the order of creation; groups may be removed meanwhile."""
        return (group for group in list(self.values()) if isinstance(group, ClassicGroup))

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        """The consumer group of that id."""
        group = self.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def all_consumer(self) -> Iterator[ConsumerGroup]:
        """Every consumer group, in the order of creation."""
        return (group for group in list(self.values()) if isinstance(group, ConsumerGroup))

    def foreign(self, group_id: str) -> ForeignGroup | None:
        """The uninterpreted group of that id."""
        group = self.get(group_id)
        return group if isinstance(group, ForeignGroup) else None

    def foreign_types(self) -> frozenset[str]:
        """Types of the groups that this core does not interpret."""
        return frozenset(group.group_type for group in self.all_foreign())

    def all_foreign(self) -> Iterator[ForeignGroup]:
        """Every uninterpreted group, in the order of creation."""
        return (group for group in list(self.values()) if isinstance(group, ForeignGroup))
