"""The configs that secure sessions with an ensemble, and the lists of new znodes."""

import re
import socket
import sys

import pytest

from sparkraft.kerberos.renewal import RenewalPolicy
from sparkraft.security.jaas import KERBEROS_MODULE, PLAIN_MODULE
from sparkraft.zookeeper.logins import DigestLogin, ServerNames, TicketLogin, canonical_host
from sparkraft.zookeeper.requests import OPEN_ACL
from sparkraft.zookeeper.security import (
    CREATOR_ALL,
    JAAS_CONFIG,
    UNSECURED,
    WORLD_READ,
    EnsembleSecurityError,
    read_ensemble_security,
)

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
LOGIN = {JAAS_CONFIG: f'{MODULE} required username="kafka" password="planted-9917";'}
TICKETS = {JAAS_CONFIG: f"{KERBEROS_MODULE} required useTicketCache=true;"}
TLS = {"zookeeper.ssl.client.enable": "true"}
STORE = {"zookeeper.ssl.keystore.location": "/s/k.p12", "zookeeper.ssl.keystore.password": "p"}


def test_without_configs_nothing_is_secured():
    security = read_ensemble_security({"zookeeper.connect": "h:1"})
    assert security == UNSECURED
    assert security.acl_of("/config/users") == OPEN_ACL


def test_lists_are_those_of_kafka():
    security = read_ensemble_security(LOGIN | {"zookeeper.set.acl": "true"})
    assert isinstance(security.login, DigestLogin)
    assert security.login.user == "kafka"
    for path in ("/brokers/ids/1", "/config/topics/t", "/kafka-acl", "/controller", "/consumers/g"):
        assert security.acl_of(path) == (CREATOR_ALL, WORLD_READ)
    for path in ("/config/users/alice", "/config/brokers/1", "/delegation_token/tokens/x"):
        assert security.acl_of(path) == (CREATOR_ALL,)
    assert security.acl_of("/consumers") == OPEN_ACL


def test_the_defaults_of_tls_are_those_of_zookeeper():
    security = read_ensemble_security(TLS | STORE)
    assert security.tls is not None
    assert security.tls.protocols == ("TLSv1.2", "TLSv1.2")
    assert security.tls.verifies_hostname
    assert security.tls.key_store is not None
    assert security.tls.key_store.type == "PKCS12"
    assert security.tls.trust_store is None
    newer = {"zookeeper.ssl.protocol": "TLSv1.3"}
    pem = {
        "zookeeper.ssl.keystore.location": "/s/k.pem",
        "zookeeper.ssl.keystore.password": "of the key",
        "zookeeper.ssl.truststore.location": "/s/ca",
        "zookeeper.ssl.truststore.type": "PEM",
        "zookeeper.ssl.truststore.password": "ignored",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
    }
    security = read_ensemble_security(TLS | newer | pem)
    assert security.tls is not None
    assert security.tls.protocols == ("TLSv1.3", "TLSv1.3")
    assert not security.tls.verifies_hostname
    assert security.tls.key_store is not None
    assert (security.tls.key_store.type, security.tls.key_store.key_password) == (
        "PEM",
        "of the key",
    )
    assert security.tls.trust_store is not None
    assert security.tls.trust_store.type == "PEM"


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"zookeeper.set.acl": "true"}, "needs a user"),
        (TLS | {"zookeeper.set.acl": "true"}, "needs a user"),
        ({"zookeeper.set.acl": "maybe"}, "true or false"),
        (TLS | {"zookeeper.ssl.crl.enable": "true"}, "crl.enable=true is not supported"),
        (TLS | {"zookeeper.ssl.ocsp.enable": "true"}, "ocsp.enable=true is not supported"),
        (TLS | {"zookeeper.ssl.keystore.type": "BCFKS", **STORE}, "BCFKS"),
        ({JAAS_CONFIG: f"{MODULE} required user_kafka=planted-9917;"}, "username and password"),
        ({JAAS_CONFIG: f"{KERBEROS_MODULE} required;"}, "useTicketCache"),
        ({JAAS_CONFIG: f'{KERBEROS_MODULE} required useKeyTab=true keyTab="/k";'}, "principal"),
        ({JAAS_CONFIG: f'{PLAIN_MODULE} required password="planted-9917";'}, "not for SASL"),
        (TICKETS | {"zookeeper.server.principal": "zookeeper"}, "service/host"),
        (TICKETS | {"zookeeper.server.principal": "a/b/c@R"}, "service/host"),
        (TICKETS | {"zookeeper.sasl.client.canonicalize.hostname": "yes"}, "true or false"),
        (LOGIN | {"zookeeper.sasl.client": "false", "zookeeper.set.acl": "true"}, "needs a user"),
        ({JAAS_CONFIG: "planted-9917"}, "control flag"),
    ],
)
def test_what_contradicts_itself_is_refused_without_showing_secrets(properties, reason):
    with pytest.raises(EnsembleSecurityError, match=reason) as raised:
        read_ensemble_security(properties)
    assert "planted-9917" not in str(raised.value)


def test_a_user_by_certificate_is_enough_for_lists():
    assert read_ensemble_security(TLS | STORE | {"zookeeper.set.acl": "true"}).sets_acls


@pytest.fixture
def library(monkeypatch):
    """An installed package that nothing is asked of."""
    monkeypatch.setitem(sys.modules, "gssapi", object())


def test_a_principal_is_a_user(library):
    jaas = f'{KERBEROS_MODULE} required useKeyTab=true keyTab="/k" principal="kafka/h@R";'
    security = read_ensemble_security({JAAS_CONFIG: jaas, "zookeeper.set.acl": "true"})
    assert isinstance(security.login, TicketLogin)
    assert security.login.names == ServerNames()
    found = security.login.login
    assert (found.service, found.principal, found.keytab) == ("zookeeper", "kafka/h@R", "/k")
    assert security.sets_acls


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(EnsembleSecurityError, match=r"sparkraft\[gssapi\]"):
        read_ensemble_security(TICKETS)


@pytest.mark.parametrize(
    ("properties", "names"),
    [
        ({}, ServerNames(service="zookeeper", host=None, canonicalizes=True)),
        ({"zookeeper.sasl.client.username": "zk"}, ServerNames(service="zk")),
        (
            {"zookeeper.sasl.client.canonicalize.hostname": "false"},
            ServerNames(canonicalizes=False),
        ),
        (
            {"zookeeper.server.principal": "zk/z1@R", "zookeeper.sasl.client.username": "other"},
            ServerNames(service="zk", host="z1"),
        ),
        ({"zookeeper.server.principal": "zk/z1"}, ServerNames(service="zk", host="z1")),
        ({"zookeeper.server.realm": "R"}, ServerNames()),
        (
            {"zookeeper.server.principal": "zk/z1", "zookeeper.server.realm": "R"},
            ServerNames(service="zk", host="z1"),
        ),
    ],
)
def test_principals_of_servers_are_those_of_zookeepers_client(library, properties, names):
    """`SaslServerPrincipal`; the option serviceName, which it does not read, changes nothing."""
    jaas = {JAAS_CONFIG: f"{KERBEROS_MODULE} required useTicketCache=true serviceName=kafka;"}
    login = read_ensemble_security(jaas | properties).login
    assert isinstance(login, TicketLogin)
    assert login.names == names
    assert login.login.service == names.service


def test_sasl_can_be_disabled():
    assert read_ensemble_security(LOGIN | {"zookeeper.sasl.client": "false"}) == UNSECURED


def test_the_renewal_of_tickets_is_configurable(library):
    """`Login` of ZooKeeper 3.8."""
    given = {"zookeeper.kinit": "/opt/kinit", "zookeeper.kerberos.minReLoginTimeMs": " 5000"}
    for properties, expected in (
        ({}, RenewalPolicy()),
        (given, RenewalPolicy(kinit="/opt/kinit", relogin_ms_min=5_000)),
    ):
        login = read_ensemble_security(TICKETS | properties).login
        assert isinstance(login, TicketLogin)
        assert login.login.renewal == expected


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("zookeeper.kerberos.minReLoginTimeMs", "soon", "a number of milliseconds, not soon"),
        ("zookeeper.kerberos.minReLoginTimeMs", "-1", "a number of milliseconds, not -1"),
        ("zookeeper.server.realm", "A@B", "a realm, not A@B"),
        ("zookeeper.server.realm", "A/B", "a realm, not A/B"),
    ],
)
def test_malformed_configs_of_kerberos_are_named(library, key, text, message):
    with pytest.raises(EnsembleSecurityError, match=f"{re.escape(key)} must be {message}"):
        read_ensemble_security(TICKETS | {key: text})


@pytest.mark.parametrize(
    ("names", "address", "expected"),
    [
        (ServerNames(), "10.0.0.1", "z1.example"),
        (ServerNames(), "10.0.0.2", "z1"),
        (ServerNames(), None, "z1"),
        (ServerNames(canonicalizes=False), "10.0.0.1", "z1"),
        (ServerNames(host="vip"), "10.0.0.1", "vip"),
    ],
)
def test_the_host_of_a_server_is_the_name_of_its_address(monkeypatch, names, address, expected):
    """Unless the name has another address: the server of a false name gets no token."""
    names_of = {"10.0.0.1": "z1.example", "10.0.0.2": "false.example"}
    monkeypatch.setattr(socket, "gethostbyaddr", lambda found: (names_of[found], [], [found]))
    monkeypatch.setattr(socket, "getaddrinfo", lambda name, _: [(0, 0, 0, "", ("10.0.0.1", 0))])
    assert names.host_of("z1", address) == expected


def test_an_address_without_a_name_has_no_canonical_host(monkeypatch):
    def fail(_):
        raise socket.herror(1, "Unknown host")

    monkeypatch.setattr(socket, "gethostbyaddr", fail)
    assert canonical_host("10.0.0.3") is None
