"""Configs, access rights, users and quotas of a replayed state, as requests return them."""

from typing import Any

from sparkraft.base.ids import Uuid
from sparkraft.client.past.changes import change_of
from sparkraft.client.past.compare import compared
from sparkraft.client.past.settings import (
    access_entries,
    client_quotas,
    config_entries,
    configured_names,
    scram_users,
)
from sparkraft.client.past.state import PastState
from sparkraft.client.values import ConfigSource, ResourceType
from sparkraft.metadata.redaction import REDACTED, redacted
from sparkraft.protocol.messages import metadata_records as records
from sparkraft.security.acls import Acl

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def state_of(*made: Any) -> PastState:
    state = PastState()
    for record in made:
        state.apply(redacted(record))
    return state


def config(kind: int, resource: str, name: str, value: str | None) -> Any:
    return records.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def test_a_brokers_own_configs_precede_those_of_all_brokers() -> None:
    state = state_of(
        config(BROKER, "", "log.cleaner.threads", "1"),
        config(BROKER, "", "num.io.threads", "9"),
        config(BROKER, "1", "log.cleaner.threads", "2"),
        config(BROKER, "2", "background.threads", "3"),
        config(TOPIC, "t", "retention.ms", "5"),
        config(TOPIC, "t", "segment.ms", "6"),
        config(TOPIC, "t", "segment.ms", None),
    )
    own, of_all = ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    found = config_entries(state, (BROKER, "1"))
    assert [(one.name, one.value, one.source) for one in found] == [
        ("log.cleaner.threads", "2", own), ("num.io.threads", "9", of_all),
    ]  # fmt: skip
    assert [(one.source, one.value) for one in found[0].synonyms] == [(own, "2"), (of_all, "1")]
    assert [one.value for one in config_entries(state, (BROKER, ""))] == ["1", "9"]
    (topic,) = config_entries(state, (TOPIC, "t"))
    assert (topic.name, topic.source) == ("retention.ms", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert config_entries(state, (TOPIC, "u")) == []
    assert configured_names(state, BROKER) == ["", "1", "2"]


def test_secrets_are_hidden() -> None:
    """The nodes' text in their place is not taken for a value."""
    state = state_of(config(BROKER, "1", "ssl.keystore.password", "hunter2"))
    assert state.configs[BROKER, "1"] == {"ssl.keystore.password": REDACTED}
    (found,) = config_entries(state, (BROKER, "1"))
    assert (found.value, found.is_sensitive, found.synonyms[0].value) == (None, True, None)


def test_access_entries_and_users() -> None:
    acl = Acl(2, "t", 3, "User:ann", "*", 3, 3)
    fields = dict(zip(Acl._fields, acl, strict=True))
    scram = [(2, "bob", 8192), (1, "bob", 4096), (1, "ann", 4096), (9, "ann", 1)]
    state = state_of(
        records.AccessControlEntryRecord(id=Uuid(bytes(15) + b"1"), **fields),
        records.AccessControlEntryRecord(
            id=Uuid(bytes(15) + b"2"), **{**fields, "host": "1.2.3.4"}
        ),
        *(
            records.UserScramCredentialRecord(name=name, mechanism=kind, iterations=count)
            for kind, name, count in scram
        ),
    )
    assert access_entries(state) == [acl, acl._replace(host="1.2.3.4")]
    assert {
        user: [(one.mechanism.name, one.iterations) for one in credentials]
        for user, credentials in scram_users(state).items()
    } == {
        "ann": [("SCRAM-SHA-256", 4096)],
        "bob": [("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 8192)],
    }


def test_quotas_have_all_digits_in_words() -> None:
    def quota(value: float) -> Any:
        entity = [records.EntityData(entity_type="user", entity_name="ann")]
        return records.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=value)

    before, after = state_of(quota(1_048_576.0)), state_of(quota(0.1))
    change = change_of(before, quota(12_345_678.5))
    assert change is not None
    assert change.text.endswith("was set to 12345678.5 (was 1048576)")
    (found,) = compared(before, after, count_max=9).listed
    assert found.text.endswith("changed from 1048576 to 0.1")


def test_quotas_of_entities_with_exactly_these_types() -> None:
    def quota(value: float, **parts: str | None) -> Any:
        entity = [
            records.EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
            for kind, name in parts.items()
        ]
        return records.ClientQuotaRecord(entity=entity, key="consumer_byte_rate", value=value)

    state = state_of(
        quota(1, user="ann"), quota(2, user=None), quota(3, user="ann", client_id="a"),
        quota(4, client_id="a"),
    )  # fmt: skip

    def values(**wanted: str | None) -> list[float]:
        types = {kind.replace("_", "-"): name for kind, name in wanted.items()}
        return [one["consumer_byte_rate"] for one in client_quotas(state, types).values()]

    assert sorted(values(user=None)) == [1, 2]
    assert values(user="ann") == [1]
    assert values(user="") == [2]
    assert values(user="bob") == []
    assert values(user=None, client_id=None) == [3]
    assert values(client_id="a") == [4]
    assert list(client_quotas(state, {"user": "ann", "client-id": "a"})) == [
        (("client-id", "a"), ("user", "ann"))
    ]
