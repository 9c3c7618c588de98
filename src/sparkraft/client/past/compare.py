"""The differences of the cluster at two moments, in words."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from sparkraft.client.past.changes import (
    Change,
    acl_text,
    entity_text,
    number_text,
    partition_differences,
    resource_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkraft.client.past.state import PastBroker, PastState, PastTopic

DIFFERENCES_MAX = 1_000

COUNTED_MAX = 100_000
"""Differences that are counted; each takes a few microseconds."""


class Comparison(NamedTuple):
    """The first differences of two moments.

    Attributes:
        listed: the first ones, by kind (controller, brokers, features, topics, configs, access
            control entries, users, quotas) and name.
        others: how many more there are.
        is_cut: whether there may be even more, because counting has a limit.
    """

    listed: list[Change]
    others: int
    is_cut: bool


def compared(before: PastState, after: PastState, *, count_max: int) -> Comparison:
    """The first `count_max` changes from `before` to `after`, and how many others there are."""
    found = _differences(before, after)
    listed = list(islice(found, count_max))
    others = sum(1 for _ in islice(found, COUNTED_MAX - len(listed)))
    return Comparison(listed, others, is_cut=next(found, None) is not None)


def differences(before: PastState, after: PastState) -> tuple[list[Change], bool]:
    """The changes from `before` to `after`, and whether there are more than are listed."""
    found = list(islice(_differences(before, after), DIFFERENCES_MAX + 1))
    return found[:DIFFERENCES_MAX], len(found) > DIFFERENCES_MAX


def _differences(before: PastState, after: PastState) -> Iterator[Change]:
    if before.leader_id != after.leader_id and -1 not in {before.leader_id, after.leader_id}:
        text = f"the controller changed from {before.leader_id} to {after.leader_id}"
        yield Change("controller", str(after.leader_id), text)
    yield from _brokers(before, after)
    yield from _features(before, after)
    yield from _topics(before, after)
    yield from _configs(before, after)
    yield from _security(before, after)


def _brokers(before: PastState, after: PastState) -> Iterator[Change]:
    for broker_id in sorted({*before.brokers, *after.brokers}):
        old, new = before.brokers.get(broker_id), after.brokers.get(broker_id)
        for text in _broker_texts(old, new):
            yield Change("broker", str(broker_id), f"broker {broker_id} {text}")


def _broker_texts(old: PastBroker | None, new: PastBroker | None) -> Iterator[str]:
    if new is None:
        yield "was unregistered"
    elif old is None:
        yield f"registered at {new.address}{', fenced' if new.is_fenced else ''}"
    else:
        if old.incarnation != new.incarnation:
            yield "was restarted"
        if old.address != new.address:
            yield f"moved from {old.address} to {new.address}"
        if old.is_fenced != new.is_fenced:
            yield "was fenced" if new.is_fenced else "was unfenced"
        if old.is_shutting_down != new.is_shutting_down:
            yield "began its controlled shutdown" if new.is_shutting_down else "is running again"
        if len(old.directories) != len(new.directories):
            count = f"{len(old.directories)} to {len(new.directories)}"
            yield f"changed from {count} online log directories"


def _features(before: PastState, after: PastState) -> Iterator[Change]:
    for name in sorted({*before.features, *after.features}):
        old, new = before.features.get(name, 0), after.features.get(name, 0)
        if old != new:
            yield Change("feature", name, f"feature {name} changed from level {old} to {new}")


def _topics(before: PastState, after: PastState) -> Iterator[Change]:
    for name in sorted({*before.topic_ids, *after.topic_ids}):
        old, new = before.topic(name), after.topic(name)
        if old is not None and (new is None or new.id != old.id):
            yield Change("topic", name, f"topic {name} was deleted")
        if new is None:
            continue
        if old is None or new.id != old.id:
            count = f"{len(new.partitions)} partition{'' if len(new.partitions) == 1 else 's'}"
            yield Change("topic", name, f"topic {name} was created with {count}")
        else:
            yield from _partitions(old, new)


def _partitions(old: PastTopic, new: PastTopic) -> Iterator[Change]:
    if old.partitions == new.partitions:
        return
    for index in sorted(new.partitions):
        name = f"{new.name}-{index}"
        was, now = old.partitions.get(index), new.partitions[index]
        if was is None:
            yield Change("partition", name, f"partition {name} was created")
        elif was != now:
            text = "; ".join(partition_differences(was, now))
            yield Change("partition", name, f"{name}: {text or 'changed and changed back'}")


def _configs(before: PastState, after: PastState) -> Iterator[Change]:
    for key in sorted({*before.configs, *after.configs}):
        old, new = before.configs.get(key, {}), after.configs.get(key, {})
        resource = resource_text(*key)
        for name in sorted({*old, *new}):
            if old.get(name) == new.get(name):
                continue
            text = (
                f"config {name} of {resource} changed from {old.get(name, 'unset')} "
                f"to {new.get(name, 'unset')}"
            )
            yield Change("config", f"{resource} {name}", text)


def _security(before: PastState, after: PastState) -> Iterator[Change]:
    old_acls, new_acls = set(before.acls.values()), set(after.acls.values())
    for acl in sorted(new_acls - old_acls):
        yield Change("acl", acl.principal, f"access control entry added: {acl_text(acl)}")
    for acl in sorted(old_acls - new_acls):
        yield Change("acl", acl.principal, f"access control entry removed: {acl_text(acl)}")
    for mechanism, user in sorted({*before.scram, *after.scram}):
        old, new = before.scram.get((mechanism, user)), after.scram.get((mechanism, user))
        if old != new:
            done = "added" if old is None else "removed" if new is None else "changed"
            yield Change("user", user, f"a SCRAM credential of user {user} was {done}")
    for entity in sorted({*before.quotas, *after.quotas}, key=str):
        old_quotas, new_quotas = before.quotas.get(entity, {}), after.quotas.get(entity, {})
        for name in sorted({*old_quotas, *new_quotas}):
            was, now = old_quotas.get(name), new_quotas.get(name)
            if was != now:
                text = (
                    f"quota {name} of {entity_text(entity)} changed from "
                    f"{'unset' if was is None else number_text(was)} to "
                    f"{'unset' if now is None else number_text(now)}"
                )
                yield Change("quota", entity_text(entity), text)
