"""How clusters are secured for librdkafka's own tests, and which tests run on each.

    0081   administration: access control entries, SCRAM users, authorized operations
    0097   certificates of clients in each format, and checks of the node's certificate
    0115, 0119   producers and consumers that entries deny
    0126   OAUTHBEARER with tokens from an endpoint (OIDC)
    0128   callbacks for tokens; it needs no node
    0135, 0142   changed credentials, sessions that end

Parts for share groups are left out: our nodes do not serve these.

0097 runs over SASL_SSL, where no certificate of the client is requested. On SSL listeners it
expects the alerts by which Java refuses a certificate, 40 or 42; OpenSSL sends 48, unknown CA.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from sparkraft.security.standard_authorizer import CLASS_NAME
from tests.support.access_tokens import AUDIENCE, ISSUER, Issuer, key_set
from tests.support.certificates import Authority, named, pem, pem_configs, private_pem
from tests.support.sasl import OAUTHBEARER, PASSWORDS, PLAIN, SHA_256, SHA_512, server_module
from tests.support.token_endpoint import TokenServer

Runs = Sequence[tuple[str, str]]
"""Tests, each with the substring that selects its parts, "" for all."""


@dataclass(frozen=True, slots=True)
class Securing:
    """How a cluster is secured, and the tests for it.

    Attributes:
        node: configs of the nodes.
        client: lines of the configuration of the tests.
        runs: the tests.
        variables: of their environment.
        java_flags: of Kafka's nodes.
    """

    node: Mapping[str, str]
    client: Mapping[str, str]
    runs: Runs
    variables: Mapping[str, str] = field(default_factory=dict)
    java_flags: str = ""


REAUTHENTICATION = tuple(
    ("0142", f"do_test_{part}") for part in ("producer", "consumer", "txn_producer")
)
CREDENTIALS = ("0135", "do_test:")
ACLS = tuple(("0081", f"do_test_{part}Acls") for part in ("Create", "Describe", "Delete"))
AUTHORIZED = tuple(
    ("0081", f"do_test_{part}")
    for part in (
        "DescribeConsumerGroups_with_authorized_ops", "DescribeTopics", "DescribeCluster",
        "UserScramCredentials",
    )
)  # fmt: skip
OIDC = tuple(
    ("0126", part)
    for part in (
        "producer and consumer with oidc configuration: client_credentials",
        "producer and consumer with oidc configuration: Sub claim",
        "OIDC failing with invalid JWT",
        "OIDC failing with expired JWT",
    )
)

_ENTRIES = {"authorizer.class.name": CLASS_NAME, "allow.everyone.if.no.acl.found": "true"}

ENTRIES = Securing(
    node=_ENTRIES,
    client={"test.timeout.multiplier": "3"},
    runs=[("0115", ""), ("0119", ""), *ACLS],
)
"""0119 has 20 seconds for 15 seconds of reading and four runs of kafka-acls.sh."""

KEY_PASSWORD = "of-the-clients-key"

_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"

WITHOUT_OIDC = "OIDC is left out: this librdkafka was built without the headers of libcurl"


def has_oidc(source: Path) -> bool:
    """Whether the library in this tree was built with OIDC."""
    return "WITH_OAUTHBEARER_OIDC 1" in (source / "config.h").read_text()


def by_mechanism(
    mechanism: str, protocol: str, authority: Authority, *, runs: Runs = ()
) -> Securing:
    """Listeners with SASL; nodes connect to each other by PLAIN.

    Sessions end after ten seconds: clients renew them a tenth earlier, and with five a busy machine
    is late now and then.
    """
    prefix = "listener.name.plaintext"
    mechanisms = list(dict.fromkeys([PLAIN, mechanism]))
    stores = pem_configs(authority.issue("node"), authority.ca_path)
    return Securing(
        node={
            "listener.security.protocol.map": f"PLAINTEXT:{protocol},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(mechanisms),
            "sasl.mechanism.inter.broker.protocol": PLAIN,
            **{
                f"{prefix}.{each.lower()}.sasl.jaas.config": server_module(each)
                for each in mechanisms
            },
            "connections.max.reauth.ms": "10000",
            **(stores if protocol == "SASL_SSL" else {}),
        },
        client={
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
            "sasl.username": "admin",
            "sasl.password": PASSWORDS["admin"],
            "ssl.ca.location": str(authority.ca_path),
        },
        runs=runs or [CREDENTIALS, *REAUTHENTICATION],
    )


def with_entries(authority: Authority) -> Securing:
    """SASL and access control: for what a user may do, as responses say it.

    Nodes are ANONYMOUS to their controllers, also after a test has added an entry for the cluster.
    """
    made = by_mechanism(SHA_256, "SASL_PLAINTEXT", authority, runs=AUTHORIZED)
    node = {key: value for key, value in made.node.items() if key != "connections.max.reauth.ms"}
    return replace(made, node=node | _ENTRIES | {"super.users": "User:ANONYMOUS"})


def with_client_files(securing: Securing, authority: Authority) -> Securing:
    """Adds a certificate and key of the client in the formats that 0097 reads."""
    folder = authority.directory
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = authority.sign(named("client"), key.public_key(), hosts=())
    password = serialization.BestAvailableEncryption(KEY_PASSWORD.encode())
    der = serialization.Encoding.DER
    contents = {
        "SSL_pkcs": pkcs12.serialize_key_and_certificates(
            b"client", key, certificate, [authority.certificate], password
        ),
        "SSL_priv_pem": private_pem(key, KEY_PASSWORD.encode()),
        "SSL_priv_der": key.private_bytes(der, serialization.PrivateFormat.PKCS8, password),
        "SSL_pub_pem": pem(certificate),
        "SSL_pub_der": certificate.public_bytes(der),
        "SSL_ca_der": authority.certificate.public_bytes(der),
        "SSL_all_cas_pem": pem(authority.certificate),
    }
    variables = {"SSL_password": KEY_PASSWORD}
    for name, content in contents.items():
        path = folder / f"client-{name}"
        path.write_bytes(content)
        variables[name] = str(path)
    client = {
        "ssl.certificate.location": variables["SSL_pub_pem"],
        "ssl.key.location": variables["SSL_priv_pem"],
        "ssl.key.password": KEY_PASSWORD,
    }
    return replace(
        securing,
        client={**securing.client, **client},
        runs=[*securing.runs, ("0097", "")],
        variables=variables,
    )


def by_tokens(authority: Authority, stack: ExitStack) -> Securing:
    """OAUTHBEARER, and endpoints that give tokens, valid and expired ones, until `stack` ends."""
    issuer = Issuer(algorithm="RS256")
    keys = authority.directory / "keys.json"
    keys.write_text(key_set(issuer.entry()))
    accounts = {"admin": "of-the-endpoint"}
    valid = stack.enter_context(TokenServer(issuer, accounts))
    expired = stack.enter_context(TokenServer(issuer, accounts))
    expired.claims = lambda: {"iat": int(time.time()) - 600, "exp": int(time.time()) - 300}
    made = by_mechanism(OAUTHBEARER, "SASL_PLAINTEXT", authority, runs=OIDC)
    handler = "listener.name.plaintext.oauthbearer.sasl.server.callback.handler.class"
    return replace(
        made,
        node={
            **made.node,
            handler: f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            _ALLOWED: f"file://{keys}",
        },
        client={
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": OAUTHBEARER,
            "sasl.oauthbearer.method": "OIDC",
            "sasl.oauthbearer.client.id": "admin",
            "sasl.oauthbearer.client.secret": accounts["admin"],
            "sasl.oauthbearer.token.endpoint.url": valid.url,
            "sasl.oauthbearer.scope": "test",
        },
        variables={
            "VALID_OIDC_URL": valid.url,
            "INVALID_OIDC_URL": "http://127.0.0.1:1/none",
            "EXPIRED_TOKEN_OIDC_URL": expired.url,
        },
        java_flags=f"-D{_ALLOWED}=file://{keys}",
    )


def secured(authority: Authority, stack: ExitStack) -> dict[str, Securing]:
    """Name → what is tested."""
    plain, scram = ((each, "SASL_PLAINTEXT") for each in (PLAIN, SHA_256))
    over_tls = by_mechanism(SHA_512, "SASL_SSL", authority)
    return {
        "access control": ENTRIES,
        "SASL and access control": with_entries(authority),
        ", ".join(plain): by_mechanism(
            *plain, authority, runs=[CREDENTIALS, *REAUTHENTICATION, ("0128", "")]
        ),
        ", ".join(scram): by_mechanism(*scram, authority),
        f"{SHA_512}, SASL_SSL": with_client_files(over_tls, authority),
        f"{OAUTHBEARER}, SASL_PLAINTEXT": by_tokens(authority, stack),
    }
