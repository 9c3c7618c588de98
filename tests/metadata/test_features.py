"""Feature levels and what follows from them."""

from sparkraft.metadata import features
from sparkraft.metadata.topic_names import unify_collision_chars, what_is_wrong


def test_defaults_of_kafka_4_3():
    assert features.default_levels(30) == features.DEFAULT_FINALIZED
    assert next(iter(features.DEFAULT_FINALIZED)) == "metadata.version"


def test_defaults_of_an_older_release_lack_newer_features():
    assert features.default_levels(25) == {
        "metadata.version": 25, "group.version": 1, "transaction.version": 2,
    }  # fmt: skip


def test_names_and_releases_find_their_level():
    for text, level in {"4.3": 30, "4.3.1": 30, "4.1": 27, "3.3-IV3": 7, "3.9": 21}.items():
        assert features.level_of(text) == level
    assert features.level_of("2.8") is None
    assert features.level_of("9") is None
    assert features.name_of(30) == "4.3-IV0"


def test_record_versions_by_level():
    assert [features.register_broker_version(v) for v in (7, 8, 16, 17, 29, 30)] == [
        1, 2, 2, 3, 3, 4,
    ]  # fmt: skip
    assert [features.partition_version(v) for v in (7, 16, 17, 22, 23, 30)] == [0, 0, 1, 1, 2, 2]
    assert [features.broker_registration_change_version(v) for v in (16, 17, 30)] == [1, 2, 3]


def test_going_back_is_free_only_where_no_record_changed():
    assert not features.metadata_changed_between(27, 29)
    assert features.metadata_changed_between(29, 30)
    assert features.metadata_changed_between(22, 23)
    assert not features.metadata_changed_between(23, 23)


def test_topic_names():
    assert what_is_wrong("a.b_c-9") is None
    assert what_is_wrong("x" * 249) is None
    for bad in ("", ".", "..", "x" * 250, "a b", "ü", "a/b"):
        assert what_is_wrong(bad)
    assert unify_collision_chars("a.b") == unify_collision_chars("a_b")
