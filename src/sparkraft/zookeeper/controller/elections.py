"""Elections by znode, by the periodic check, and by clients."""

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import TopicPartition
from sparkraft.controller.leader_election import Cause, CauseKind
from sparkraft.zookeeper.controller import partitions, store
from sparkraft.zookeeper.controller.active import Active
from sparkraft.zookeeper.controller.steps import Steps, Worked, pieces
from sparkraft.zookeeper.controller.strategies import Strategy

BY_ZNODE = Cause(CauseKind.PREFERRED, "/admin/preferred_replica_election names it")
BY_CHECK = Cause(CauseKind.PREFERRED, "too few partitions have their preferred leader")

NOT_NEEDED = "Leader election not needed for topic partition."

BY_CLIENT = Cause(CauseKind.PREFERRED, "a client requested it")
BY_CLIENT_UNCLEAN = Cause(CauseKind.UNCLEAN, "a client requested it")


def elect_by_znode(active: Active) -> Steps[int]:
    """Elect the partitions in /admin/preferred_replica_election and delete it.

    Returns the number of partitions that were not led by their preferred replica.
    """
    wanted = yield from store.read_preferred_elections(active.ignore)
    if wanted is None:
        return 0
    pending = [at for at in wanted if _is_imbalanced(active, at)]
    yield from partitions.move_online(active, pending, Strategy.PREFERRED, BY_ZNODE)
    yield from store.delete_preferred_elections(active.context.epoch_version)
    return len(pending)


def _is_imbalanced(active: Active, at: TopicPartition) -> bool:
    context = active.context
    replicas, leadership = context.assignment(at).replicas, context.leaderships.get(at)
    return (
        bool(replicas)
        and leadership is not None
        and at[0] not in context.topics_to_be_deleted
        and leadership.state.leader != replicas[0]
    )


def why_not(active: Active, at: TopicPartition, *, unclean: bool) -> tuple[ErrorCode, str] | None:
    """Return why a client's request does not elect a leader of a partition; None if it does."""
    context = active.context
    replicas, leadership = context.assignment(at).replicas, context.leaderships.get(at)
    if not replicas or leadership is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
    if at[0] in context.topics_to_be_deleted:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted"
    leader = leadership.state.leader
    is_fine = leader in context.live_brokers if unclean else leader == replicas[0]
    return (ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED) if is_fine else None


def elect_for_client(
    active: Active, electable: list[TopicPartition], *, unclean: bool
) -> Steps[partitions.Results]:
    """Elect leaders; an unclean election ignores the topics' configs."""
    strategy = Strategy.OFFLINE if unclean else Strategy.PREFERRED
    cause = BY_CLIENT_UNCLEAN if unclean else BY_CLIENT
    return (yield from partitions.move_online(active, electable, strategy, cause, unclean=unclean))


def balance(active: Active) -> Steps[None]:
    """Elect preferred leaders of each broker that leads too few of its partitions.

    Those that would fail are left out: the preferred replica is offline or not in the ISR.
    """
    context = active.context
    preferred: dict[int, list[TopicPartition]] = {}
    for piece in pieces(context.partitions()):
        for at in piece:
            replicas = context.assignment(at).replicas
            if replicas and at[0] not in context.topics_to_be_deleted:
                preferred.setdefault(replicas[0], []).append(at)
        yield Worked(len(piece))
    for broker, group in sorted(preferred.items()):
        imbalanced: list[TopicPartition] = []
        for piece in pieces(group):
            imbalanced += [at for at in piece if _is_imbalanced(active, at)]
            yield Worked(len(piece))
        if len(imbalanced) / len(group) <= active.settings.imbalance_max:
            continue
        able = [
            at
            for at in imbalanced
            if context.is_online(broker, at) and broker in context.leaderships[at].state.isr
        ]
        yield from partitions.move_online(active, able, Strategy.PREFERRED, BY_CHECK)
