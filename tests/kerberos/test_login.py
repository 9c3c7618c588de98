"""`Krb5LoginModule`: which key or ticket a client uses; the library itself is not needed here."""

import pickle
import sys

import pytest

from sparkraft.client.security import SecurityConfigError, login_of_properties
from sparkraft.kerberos.contexts import KerberosError
from sparkraft.kerberos.login import KerberosLogin, kerberos_login, service_principal
from sparkraft.security.jaas import KERBEROS_MODULE, PLAIN_MODULE, JaasError, parse_jaas

KEY = 'useKeyTab="true" keyTab="/k" principal="alice@R"'


@pytest.fixture
def library(monkeypatch):
    """An installed package that nothing is asked of."""
    monkeypatch.setitem(sys.modules, "gssapi", object())


def module(options: str, name: str = KERBEROS_MODULE):
    return parse_jaas(f"{name} required {options};")


@pytest.mark.parametrize(
    ("options", "principal", "keytab", "cache"),
    [
        (KEY, "alice@R", "/k", None),
        (KEY.replace('"/k"', '"file:/k"'), "alice@R", "/k", None),
        (KEY.replace('"true"', "TRUE"), "alice@R", "/k", None),
        (f'{KEY} useTicketCache="true" debug="true"', "alice@R", "/k", None),
        ('useTicketCache="true"', None, None, None),
        ('useTicketCache="true" ticketCache="/t" principal="bob"', "bob", None, "/t"),
    ],
)
def test_a_key_or_a_ticket_is_found(library, options, principal, keytab, cache):
    found = kerberos_login(module(options), "kafka")
    wanted = KerberosLogin(service="kafka", principal=principal, keytab=keytab, cache=cache)
    assert found == wanted
    assert pickle.loads(pickle.dumps(found)) == wanted, "for Spark's workers"
    assert (found.mechanism, found.blocks) == ("GSSAPI", True)


def test_the_service_is_in_the_module_or_in_the_configs(library):
    inside = module(f'{KEY} serviceName="kafka"')
    assert kerberos_login(inside, None) == kerberos_login(inside, "kafka")
    with pytest.raises(JaasError, match="differ"):
        kerberos_login(inside, "mailer")
    with pytest.raises(JaasError, match=r"needs sasl\.kerberos\.service\.name"):
        kerberos_login(module(KEY), None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "needs the options useKeyTab"),
        ('principal="alice@R" keyTab="/k"', "needs the options useKeyTab"),
        ('useKeyTab="true" principal="alice@R"', "needs the option keyTab"),
        ('useKeyTab="true" keyTab="/k"', "needs the option principal"),
    ],
)
def test_a_module_without_a_key_or_a_ticket_is_named(library, options, message):
    with pytest.raises(JaasError, match=message):
        kerberos_login(module(options), "kafka")


def test_other_login_modules_and_a_missing_package_are_named(monkeypatch):
    with pytest.raises(JaasError, match="is not for SASL mechanism GSSAPI"):
        kerberos_login(module("", PLAIN_MODULE), "kafka")
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(KerberosError, match=r"pip install 'sparkraft\[gssapi\]'"):
        kerberos_login(module(KEY), "kafka")
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f"{KERBEROS_MODULE} required {KEY};",
    }
    with pytest.raises(SecurityConfigError, match="pip install"):
        login_of_properties(properties)


@pytest.mark.parametrize("principal", ["", "kafka", "kafka@R", "kafka/h/i@R", r"kafka\\/h@R"])
def test_a_node_needs_the_principal_of_a_service(principal):
    assert service_principal(module('principal="kafka/h@R"')) == "kafka/h@R"
    with pytest.raises(JaasError, match="must be service/host@REALM"):
        service_principal(module(f'principal="{principal}"'))
