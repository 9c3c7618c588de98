"""Config declarations, parsing, and where a value comes from."""

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.configs import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    UpdateMode,
    format_value,
    parse_value,
    topic_defaults,
    validate_topic_configs,
)
from sparkraft.metadata.configs.broker import definition_of
from sparkraft.metadata.configs.definition import ConfigDef, ConfigType, java_double
from sparkraft.metadata.configs.describe import (
    BrokerSources,
    ConfigSource,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)

ALL = [*BROKER_CONFIGS.values(), *TOPIC_CONFIGS.values(), *GROUP_CONFIGS.values(),
       *CLIENT_METRICS_CONFIGS.values()]  # fmt: skip


def test_the_numbers_of_keys_are_kafkas():
    assert len(TOPIC_CONFIGS) == 34
    assert len(BROKER_CONFIGS) == 360
    assert len(GROUP_CONFIGS) == 17


@pytest.mark.parametrize("definition", ALL, ids=lambda d: d.name)
def test_every_default_passes_its_own_check(definition):
    if definition.required or definition.default is None:
        return
    text = format_value(definition.default)
    assert parse_value(definition, text) == definition.default


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", " +12 ", 12),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("cleanup.policy", "compact , delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("preallocate", "TRUE", True),
        ("compression.gzip.level", "9", 9),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
    ],
)
def test_good_values(key, text, value):
    assert parse_value(TOPIC_CONFIGS[key], text) == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "1_000"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", "1" * 5000),
        ("retention.ms", "\u0663"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("cleanup.policy", "compact,compact"),
        ("cleanup.policy", "delete,"),
        ("cleanup.policy", "keep"),
        ("segment.bytes", "1024"),
        ("preallocate", "yes"),
        ("compression.gzip.level", "0"),
        ("compression.type", "GZIP"),
        ("leader.replication.throttled.replicas", "1"),
    ],
)
def test_bad_values_are_refused(key, text):
    with pytest.raises(KafkaError) as caught:
        parse_value(TOPIC_CONFIGS[key], text)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert key in caught.value.detail


def test_a_share_group_may_start_at_a_duration():
    key = GROUP_CONFIGS["share.auto.offset.reset"]
    for text in ("latest", "earliest", "by_duration:P1DT2H", "by_duration:PT0.5S"):
        assert parse_value(key, text) == text
    for text in ("by_duration:", "by_duration:P", "by_duration:-PT1S", "none"):
        with pytest.raises(KafkaError):
            parse_value(key, text)


def test_topic_configs_are_checked_together():
    with pytest.raises(KafkaError, match="Unknown topic config name: nobody"):
        validate_topic_configs({"nobody": "1"})
    with pytest.raises(KafkaError, match="greater than"):
        validate_topic_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
    with pytest.raises(KafkaError, match="tiered storage"):
        validate_topic_configs({"remote.storage.enable": "true"})
    assert validate_topic_configs({"retention.ms": "7"}) == {"retention.ms": 7}


def test_the_broker_gives_topics_their_defaults():
    values = topic_defaults({"log.retention.hours": "2", "message.max.bytes": "5"})
    assert values["retention.ms"] == 7_200_000
    assert values["max.message.bytes"] == 5
    stronger = topic_defaults({"log.retention.hours": "2", "log.retention.minutes": "1"})
    assert stronger["retention.ms"] == 60_000
    assert topic_defaults({"log.retention.hours": "-1"})["retention.ms"] == -1


def test_a_listener_may_have_its_own_value():
    found = definition_of("listener.name.internal.ssl.keystore.location")
    assert found is BROKER_CONFIGS["ssl.keystore.location"]
    assert definition_of("no.such.key") is None


def test_doubles_look_like_javas():
    for value, text in [
        (0.5, "0.5"),
        (1e7, "1.0E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (0.0001, "1.0E-4"),
        (0.0, "0.0"),
    ]:
        assert java_double(value) == text


def sources(dynamic=None, cluster=None, static=None):
    return BrokerSources(dynamic or {}, cluster or {}, static or {})


def test_keys_of_our_own_are_described_once_set():
    own = ConfigDef("sparkraft.http.listener", ConfigType.STRING, default="")
    set_here = BrokerSources({}, {}, {own.name: "h:1"}, {own.name: own})
    found = entry(describe_broker(set_here), own.name)
    assert (found.value, found.sensitive, found.read_only) == ("h:1", False, True)
    assert [(s.value, s.source) for s in found.synonyms] == [
        ("h:1", ConfigSource.STATIC_BROKER_CONFIG),
        ("", ConfigSource.DEFAULT_CONFIG),
    ]
    unset = BrokerSources({}, {}, {}, {own.name: own})
    assert own.name not in [each.name for each in describe_broker(unset)]


def entry(entries, name):
    return next(e for e in entries if e.name == name)


def test_sources_of_a_topic_config_strongest_first():
    entries = describe_topic(
        {"max.message.bytes": "1"},
        sources({"message.max.bytes": "2"}, {"message.max.bytes": "3"}, {"message.max.bytes": "4"}),
    )
    found = entry(entries, "max.message.bytes")
    assert found.value == "1"
    assert found.source is ConfigSource.TOPIC_CONFIG
    assert [(s.name, s.value, s.source) for s in found.synonyms] == [
        ("max.message.bytes", "1", ConfigSource.TOPIC_CONFIG),
        ("message.max.bytes", "2", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("message.max.bytes", "3", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("message.max.bytes", "4", ConfigSource.STATIC_BROKER_CONFIG),
        ("message.max.bytes", "1048588", ConfigSource.DEFAULT_CONFIG),
    ]


def test_a_topic_config_takes_the_brokers_value():
    found = entry(
        describe_topic({}, sources({}, {"min.insync.replicas": "2"})), "min.insync.replicas"
    )
    assert (found.value, found.source) == ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)


def test_retention_shows_no_synonyms_where_only_hours_are_set():
    found = entry(describe_topic({}, sources(static={"log.retention.hours": "1"})), "retention.ms")
    assert (found.value, found.source, found.synonyms) == (
        "3600000", ConfigSource.DEFAULT_CONFIG, (),
    )  # fmt: skip


def test_internal_topic_keys_are_not_shown():
    assert "internal.segment.bytes" not in [e.name for e in describe_topic({}, sources())]


def test_secrets_and_unknown_keys_are_not_shown():
    entries = describe_broker(
        sources(static={"ssl.keystore.password": "secret", "my.plugin.key": "secret"})
    )
    for name in ("ssl.keystore.password", "my.plugin.key"):
        found = entry(entries, name)
        assert found.sensitive
        assert found.value is None
        assert "secret" not in str(found)


def test_a_broker_tells_which_keys_are_read_only():
    entries = describe_broker(sources(static={"node.id": "1"}))
    assert entry(entries, "node.id").read_only
    assert entry(entries, "node.id").source is ConfigSource.STATIC_BROKER_CONFIG
    assert not entry(entries, "log.retention.ms").read_only
    assert BROKER_CONFIGS["listeners"].dynamic is UpdateMode.PER_BROKER


def test_the_rates_of_throttles_are_told_where_somebody_has_set_them():
    """As Kafka 4.3.1 tells them: not as secrets."""
    key = "leader.replication.throttled.rate"
    assert key not in {e.name for e in describe_broker(sources())}
    found = entry(describe_broker(sources(dynamic={key: "7"}, cluster={key: "8"})), key)
    assert (found.value, found.source) == ("7", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert not found.sensitive
    assert not found.read_only
    assert found.kind == ConfigType.LONG
    assert [s.value for s in found.synonyms] == ["7", "8"]


def test_cluster_defaults_show_only_what_is_set():
    entries = describe_broker_defaults(sources(cluster={"min.insync.replicas": "2"}))
    assert [(e.name, e.value, e.source) for e in entries] == [
        ("min.insync.replicas", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    ]
