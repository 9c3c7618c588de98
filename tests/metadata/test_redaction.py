"""Secrets in metadata records: the rule of Kafka's `RecordRedactor`."""

import pytest

from sparkraft.metadata.configs import ConfigDef, ConfigType
from sparkraft.metadata.redaction import REDACTED, SECRET_TYPES, is_sensitive, redacted
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.protocol.messages import metadata_records as records

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32


@pytest.mark.parametrize(
    ("resource_type", "key", "expected"),
    [
        (TOPIC, "retention.ms", False),
        (TOPIC, "unknown.key", True),
        (BROKER, "log.cleaner.threads", False),
        (BROKER, "ssl.keystore.password", True),
        (BROKER, "listener.name.external.ssl.key.password", True),
        (BROKER, "sasl.jaas.config", True),
        (BROKER, "a.plugin.of.ours", True),
        (CLIENT_METRICS, "interval.ms", False),
        (GROUP, "consumer.session.timeout.ms", False),
        (99, "retention.ms", True),
    ],
)
def test_passwords_and_unknown_configs_are_sensitive(resource_type, key, expected):
    assert is_sensitive(resource_type, key) is expected


def test_a_config_that_only_this_node_knows_is_not_sensitive_if_it_is_not_a_password():
    extensions = {
        "own.number": ConfigDef("own.number", ConfigType.INT, default=1),
        "own.password": ConfigDef("own.password", ConfigType.PASSWORD, default=None),
    }
    assert not is_sensitive(BROKER, "own.number", extensions=extensions)
    assert is_sensitive(BROKER, "own.password", extensions=extensions)


def test_no_secret_is_left_in_a_redacted_record():
    secrets = [
        records.ConfigRecord(
            resource_type=BROKER, resource_name="1", name="ssl.key.password", value="hunter2"
        ),
        records.UserScramCredentialRecord(
            name="alice", mechanism=1, salt=b"hunter2", stored_key=b"hunter2",
            server_key=b"hunter2", iterations=4096,
        ),
        records.DelegationTokenRecord(owner="User:hunter2", token_id="hunter2"),
        records.RemoveDelegationTokenRecord(token_id="hunter2"),
    ]  # fmt: skip
    for secret in secrets:
        assert b"hunter2" in encode_metadata_record(secret, 0)
        assert b"hunter2" not in encode_metadata_record(redacted(secret), 0)
        assert secret.SCHEMA.key in SECRET_TYPES
    assert redacted(secrets[0]).value == REDACTED
    assert redacted(secrets[1]).iterations == 4096


def test_everything_else_stays_the_same_record():
    removed = records.ConfigRecord(
        resource_type=BROKER, resource_name="1", name="ssl.key.password", value=None
    )
    harmless = records.ConfigRecord(
        resource_type=TOPIC, resource_name="t", name="retention.ms", value="1"
    )
    assert redacted(removed) is removed
    assert redacted(harmless) is harmless
    for cls in records.METADATA_RECORDS.values():
        if cls.SCHEMA.key not in SECRET_TYPES:
            record = cls()
            assert redacted(record) is record
