"""Ids that stand for topics without an id."""

from sparkraft.base.env import random_uuid
from sparkraft.base.ids import Uuid
from sparkraft.base.placeholder_ids import (
    is_placeholder,
    is_same_topic,
    known_id,
    placeholder_id,
    wire_id,
)
from sparkraft.server.env import SystemEntropy

OWN = Uuid(b"\1" * 16)


def test_each_name_has_its_own_which_is_not_an_id_of_a_topic():
    names = [f"t{number}" for number in range(1_000)] + ["", "é"]
    ids = {placeholder_id(name) for name in names}
    assert len(ids) == len(names)
    assert all(is_placeholder(each) for each in ids)
    assert placeholder_id("t1") == placeholder_id("t1")
    reserved = [Uuid.ZERO, Uuid(bytes(15) + b"\1"), Uuid(bytes(15) + b"\2")]
    entropy = SystemEntropy()
    for each in [*reserved, *(random_uuid(entropy) for _ in range(1_000))]:
        assert not is_placeholder(each)


def test_it_is_neither_stored_nor_sent():
    stands_for = placeholder_id("t")
    assert (known_id(stands_for), known_id(OWN)) == (None, OWN)
    assert (wire_id(stands_for), wire_id(OWN)) == (Uuid.ZERO, OWN)


def test_a_topic_may_get_an_id_and_two_ids_are_two_topics():
    assert is_same_topic(placeholder_id("t"), OWN)
    assert is_same_topic(OWN, placeholder_id("t"))
    assert is_same_topic(OWN, OWN)
    assert not is_same_topic(OWN, Uuid(b"\2" * 16))
