"""Conditions that a cluster must meet before KRaft controllers may take it over (KIP-866).

Kafka waits until each broker of an assignment is registered, and fails in the middle if it cannot
read a znode. Everything that znodes can show is checked here before the first change.

Conditions of ours, which Kafka does not have: encrypted configs are refused, and so are access
control entries and delegation tokens if the controller could not enforce or store them.
"""

from collections.abc import Generator, Iterator
from typing import NamedTuple

from sparkraft.base.errors import InvariantBroken
from sparkraft.metadata.apply import apply
from sparkraft.metadata.configs.broker import dynamic_definition_of
from sparkraft.metadata.configs.definition import ConfigType
from sparkraft.metadata.features import DELEGATION_TOKEN_LEVEL, METADATA_LEVEL_MAX, name_of
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.zookeeper.controller.steps import pieces
from sparkraft.zookeeper.migration.records import batches_of, topics_to_copy
from sparkraft.zookeeper.migration.tree import ZnodeTree
from sparkraft.zookeeper.znodes.brokers import BROKER_IDS
from sparkraft.zookeeper.znodes.cluster import CLUSTER_ID, CONTROLLER, MIGRATION
from sparkraft.zookeeper.znodes.json_form import ZnodeError
from sparkraft.zookeeper.znodes.security import LITERAL_ACLS, PREFIXED_ACLS, TOKENS
from sparkraft.zookeeper.znodes.topics import CONFIG, TOPICS, Topic

_NAMES_MAX = 5
"""Names in one sentence."""


class Condition(NamedTuple):
    """One condition of a migration."""

    text: str
    obstacle: str | None
    """Why it is not met; None if it is."""


class _NoEntropy:
    """The records of a check are never written; their ids need not be random."""

    def random_bytes(self, count: int) -> bytes:
        return bytes(range(1, count + 1))

    def below(self, bound: int) -> int:
        _ = bound
        return 0


class Enforced(NamedTuple):
    """Whether the controller enforces what it copies.

    Attributes:
        has_authorizer: of access control entries.
        has_tokens: whether it has the secret of delegation tokens.
        metadata_level: metadata.version; tokens have records from `DELEGATION_TOKEN_LEVEL` on.
    """

    has_authorizer: bool = True
    has_tokens: bool = True
    metadata_level: int = METADATA_LEVEL_MAX


EVERYTHING = Enforced()


def conditions_of(tree: ZnodeTree, enforced: Enforced = EVERYTHING) -> list[Condition]:
    """Every condition that znodes can show, met or not, in the order in which to resolve them."""
    steps = check_conditions(tree, enforced)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: list[Condition] = end.value
            return found


def obstacle_in(conditions: list[Condition]) -> str | None:
    """The first condition that is not met, as a sentence; None if all are."""
    unmet = (each for each in conditions if each.obstacle is not None)
    return next((f"not met: {each.text} ({each.obstacle})" for each in unmet), None)


def check_conditions(
    tree: ZnodeTree, enforced: Enforced, *, may_resume: bool = False
) -> Generator[int, None, list[Condition]]:
    """As `conditions_of`; yields the units of each piece of work.

    Args:
        tree: the znodes.
        enforced: whether the controller enforces access control entries and tokens.
        may_resume: a KRaft controller may have /controller. It is one of this quorum, which has
            ended before its copy was committed; the next one takes /controller from it.
    """
    problems: list[str] = []
    for piece in pieces(tree):
        problems += [f"{error.path}: {error.reason}" for error in tree.problems(piece)]
        yield len(piece)
    found = [
        Condition("the cluster has an id", _missing(tree, CLUSTER_ID)),
        Condition("every znode is readable", _list(problems)),
    ]
    if any(each.obstacle for each in found):
        return found
    with_replicas: dict[int, str] = {}
    for piece in pieces(topics_to_copy(tree)):
        _add_brokers(tree, piece, with_replicas)
        yield len(piece)
    found += [
        Condition(
            "no KRaft controller has migrated it before", _earlier_migration(tree, may_resume)
        ),
        Condition("brokers are registered", _no_brokers(tree)),
        Condition(
            "every broker with replicas is registered", _list(_absent_brokers(tree, with_replicas))
        ),
        Condition("no encrypted configs of brokers", _list(_passwords(tree))),
        Condition("every znode can be copied", (yield from _uncopied(tree))),
    ]
    if not enforced.has_authorizer:
        text = "access control entries need authorizer.class.name at the controller"
        found.append(Condition(text, _list(_acls(tree))))
    if not enforced.has_tokens:
        text = "delegation tokens need delegation.token.secret.key at the controller"
        found.append(Condition(text, _list(tree.children(TOKENS))))
    if enforced.metadata_level < DELEGATION_TOKEN_LEVEL:
        needed = name_of(DELEGATION_TOKEN_LEVEL)
        text = f"delegation tokens need metadata.version {needed} or later"
        found.append(Condition(text, _list(tree.children(TOKENS))))
    return found


def _missing(tree: ZnodeTree, path: str) -> str | None:
    return None if path in tree else f"no {path}"


def _list(names: list[str]) -> str | None:
    if not names:
        return None
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return "; ".join(names[:_NAMES_MAX]) + more


def _earlier_migration(tree: ZnodeTree, may_resume: bool) -> str | None:  # noqa: FBT001 (private)
    controller = tree.value(CONTROLLER)
    if controller is not None and controller.kraft_epoch >= 0 and not may_resume:
        return f"/controller: KRaft controller {controller.broker}"
    migration = tree.value(MIGRATION)
    if migration is not None and migration.metadata_offset >= 0:
        return "/migration is left; delete it if that migration was rolled back"
    return None


def _no_brokers(tree: ZnodeTree) -> str | None:
    return None if tree.children(BROKER_IDS) else f"no znode in {BROKER_IDS}"


def _add_brokers(tree: ZnodeTree, topics: list[str], found: dict[int, str]) -> None:
    """Add brokers that have, or get, replicas of these topics, each with such a topic."""
    for name in topics:
        topic: Topic = tree.value(f"{TOPICS}/{name}")
        for assignment in topic.partitions.values():
            for broker in (*assignment.replicas, *assignment.adding):
                found.setdefault(broker, name)


def _absent_brokers(tree: ZnodeTree, with_replicas: dict[int, str]) -> list[str]:
    registered = {int(name) for name in tree.children(BROKER_IDS) if name.isdecimal()}
    return [
        f"broker {broker} has replicas of {topic}"
        for broker, topic in sorted(with_replicas.items())
        if broker not in registered
    ]


def _acls(tree: ZnodeTree) -> list[str]:
    return [
        f"{root}/{kind}/{name}"
        for root in (LITERAL_ACLS, PREFIXED_ACLS)
        for kind in tree.children(root)
        for name in tree.children(f"{root}/{kind}")
    ]


def _passwords(tree: ZnodeTree) -> list[str]:
    return [f"{path}: {key}" for path, key in _broker_configs(tree) if _is_password(key)]


def _broker_configs(tree: ZnodeTree) -> Iterator[tuple[str, str]]:
    for name in tree.children(f"{CONFIG}/brokers"):
        path = f"{CONFIG}/brokers/{name}"
        for key in tree.value(path) or {}:
            yield path, key


def _is_password(key: str) -> bool:
    definition = dynamic_definition_of(key)
    return definition is not None and definition.kind is ConfigType.PASSWORD


def _uncopied(tree: ZnodeTree) -> Generator[int, None, str | None]:
    """Replay the records: one that breaks an invariant would stop every controller."""
    image = EMPTY_IMAGE
    try:
        for batch in batches_of(tree, _NoEntropy()):
            for record, _ in batch:
                image = apply(image, record)
            yield len(batch)
    except ZnodeError as error:
        return f"{error.path}: {error.reason}"
    except InvariantBroken as error:
        return str(error)
    return None
