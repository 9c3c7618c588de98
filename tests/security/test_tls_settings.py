"""ssl.* configs: what they mean, and the combinations that Kafka refuses, too."""

import pytest

from sparkraft.security.tls_settings import (
    ClientAuth,
    TlsConfigError,
    check_listener,
    read_tls_settings,
)

STORE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k"}
TRUST = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/t"}
INLINE = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": "KEY",
    "ssl.keystore.certificate.chain": "CHAIN",
}


def test_defaults():
    settings = read_tls_settings({}.get)
    assert settings.key_store is None
    assert settings.trust_store is None
    assert settings.client_auth is ClientAuth.NONE
    assert settings.protocols == ("TLSv1.2", "TLSv1.3")
    assert settings.verifies_hostname


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ssl.keystore.location": "/k", "ssl.keystore.type": "JCEKS"}, "ssl.keystore.type=JCEKS"),
        (STORE | {"ssl.keystore.password": "p"}, "ssl.keystore.password cannot"),
        (INLINE | {"ssl.keystore.password": "p"}, "ssl.keystore.password cannot"),
        (STORE | INLINE, "not both"),
        ({"ssl.keystore.key": "K", "ssl.keystore.type": "PEM"}, "set both"),
        ({"ssl.keystore.certificate.chain": "C", "ssl.keystore.type": "PEM"}, "set both"),
        ({"ssl.keystore.password": "p"}, "without ssl.keystore.location"),
        (TRUST | {"ssl.truststore.password": "p"}, "ssl.truststore.password cannot"),
        (TRUST | {"ssl.truststore.certificates": "C"}, "not both"),
        ({"ssl.truststore.password": "p"}, "without ssl.truststore.location"),
        ({"ssl.keystore.location": "/k"}, "set without ssl.keystore.password"),
        (
            {"ssl.keystore.key": "K", "ssl.keystore.certificate.chain": "C"},
            "ssl.keystore.key needs ssl.keystore.type=PEM, which is JKS",
        ),
        (
            {"ssl.truststore.certificates": "C", "ssl.truststore.type": "PKCS12"},
            "ssl.truststore.certificates needs ssl.truststore.type=PEM, which is PKCS12",
        ),
        ({"ssl.cipher.suites": "TLS_NULL"}, "TLS_NULL is not supported"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "add TLS_AES_128_GCM_SHA256"),
        (
            {
                "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "ssl.enabled.protocols": "TLSv1.3",
            },
            "no suite of the ssl.enabled.protocols",
        ),
        ({"ssl.client.auth": "maybe"}, "required, requested or none"),
        ({"ssl.enabled.protocols": "TLSv1.3,TLSv1"}, "TLSv1 is not supported"),
        ({"ssl.protocol": "SSLv3"}, "ssl.protocol=SSLv3"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "https or empty"),
        ({"ssl.engine.factory.class": "org.example.X"}, "ssl.engine.factory.class"),
        ({"ssl.provider": "X"}, "ssl.provider"),
        ({"ssl.secure.random.implementation": "X"}, "ssl.secure.random.implementation"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "ssl.principal.mapping.rules"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(given, said):
    with pytest.raises(TlsConfigError) as caught:
        read_tls_settings(given.get)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (TRUST, "a TLS listener needs ssl.keystore.location"),
        (STORE | {"ssl.client.auth": "required"}, "needs ssl.truststore.location"),
        (STORE | {"ssl.client.auth": "requested"}, "needs ssl.truststore.location"),
    ],
)
def test_what_a_listener_needs(given, said):
    with pytest.raises(TlsConfigError) as caught:
        check_listener(read_tls_settings(given.get))
    assert said in str(caught.value)


def test_secrets_are_not_shown():
    given = INLINE | {"ssl.key.password": "s3cret", "ssl.keystore.key": "s3cret key"}
    assert "s3cret" not in repr(read_tls_settings(given.get))


def test_versions_without_a_suite_are_off():
    newest = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
    older = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"
    for suites, bounds, names in [
        (newest, ("TLSv1.3", "TLSv1.3"), 0),
        (older, ("TLSv1.2", "TLSv1.2"), 2),
        (f"{newest},{older}", ("TLSv1.2", "TLSv1.3"), 2),
    ]:
        settings = read_tls_settings({"ssl.cipher.suites": suites}.get)
        assert settings.protocols == bounds
        assert len(settings.cipher_suites) == names


def test_versions_of_tls():
    for text, bounds in [
        ("TLSv1.3", ("TLSv1.3", "TLSv1.3")),
        ("TLSv1.2", ("TLSv1.2", "TLSv1.2")),
        ("TLSv1.3, TLSv1.2", ("TLSv1.2", "TLSv1.3")),
    ]:
        assert read_tls_settings({"ssl.enabled.protocols": text}.get).protocols == bounds
