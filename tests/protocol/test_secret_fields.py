"""Fields with secrets: neither a log nor a traceback shows their value (CVE-2026-33558)."""

import importlib
import pkgutil
from typing import Any

import pytest

from sparkraft.protocol import messages
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages import k33_alter_configs as k33
from sparkraft.protocol.messages import k36_sasl_authenticate as k36
from sparkraft.protocol.messages import k38_create_delegation_token as k38
from sparkraft.protocol.messages import k39_renew_delegation_token as k39
from sparkraft.protocol.messages import k40_expire_delegation_token as k40
from sparkraft.protocol.messages import k41_describe_delegation_token as k41
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.protocol.messages import k51_alter_user_scram_credentials as k51
from sparkraft.protocol.messages import k58_envelope as k58
from sparkraft.protocol.messages import metadata_records as records

PLANTED = b"planted-6104"
TEXT = PLANTED.decode()

SECRETS: tuple[Message, ...] = (
    k33.AlterConfigsRequest(
        resources=[k33.AlterConfigsResource(configs=[k33.AlterableConfig(name="n", value=TEXT)])]
    ),
    k36.SaslAuthenticateRequest(auth_bytes=PLANTED),
    k36.SaslAuthenticateResponse(auth_bytes=PLANTED),
    k38.CreateDelegationTokenResponse(hmac=PLANTED),
    k39.RenewDelegationTokenRequest(hmac=PLANTED),
    k40.ExpireDelegationTokenRequest(hmac=PLANTED),
    k41.DescribeDelegationTokenResponse(tokens=[k41.DescribedDelegationToken(hmac=PLANTED)]),
    k44.IncrementalAlterConfigsRequest(
        resources=[k44.AlterConfigsResource(configs=[k44.AlterableConfig(name="n", value=TEXT)])]
    ),
    k51.AlterUserScramCredentialsRequest(
        upsertions=[k51.ScramCredentialUpsertion(name="u", salted_password=PLANTED)]
    ),
    k58.EnvelopeRequest(request_data=PLANTED),
    k58.EnvelopeResponse(response_data=PLANTED),
    records.ConfigRecord(name="n", value=TEXT),
    records.UserScramCredentialRecord(stored_key=PLANTED),
    records.UserScramCredentialRecord(server_key=PLANTED),
)


@pytest.mark.parametrize("message", SECRETS, ids=lambda each: type(each).__name__)
def test_a_secret_is_hidden(message: Message) -> None:
    assert TEXT not in repr(message)
    assert "[hidden]" in repr(message)


def test_other_fields_are_shown() -> None:
    assert repr(k33.AlterableConfig(name="n", value="v")) == (
        "AlterableConfig(name='n', value=[hidden])"
    )
    assert repr(k33.AlterableConfig(name="n")) == "AlterableConfig(name='n')"


def test_every_field_whose_name_sounds_like_a_secret_is_one() -> None:
    """A message that is added with such a field must say so."""
    open_fields = []
    for module in pkgutil.iter_modules(messages.__path__):
        found = importlib.import_module(f"{messages.__name__}.{module.name}")
        for each in vars(found).values():
            if isinstance(each, type) and issubclass(each, Message) and each is not Message:
                open_fields += [f"{each.__name__}.{field.name}" for field in _suspects(each)]
    assert open_fields == []


def _suspects(message: Any) -> list[Any]:
    words = ("hmac", "password", "auth_bytes", "stored_key", "server_key", "secret")
    return [
        field
        for field in message.SCHEMA.fields
        if not field.is_secret and any(word in field.name for word in words)
    ]
