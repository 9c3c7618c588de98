"""Stores that Java's keytool has written: JKS, PKCS12, and the PKCS12 of old JDKs."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.security.binary_stores import read_binary_key_store, read_binary_trust_store
from sparkraft.security.pem import StoreError
from sparkraft.security.tls_settings import TlsConfigError, read_tls_settings
from sparkraft.tls.contexts import client_context, server_context
from tests.tls.test_contexts import spoken

PASSWORD = "store-secret"
KEY_PASSWORD = "key-secret"


def keytool(*arguments: str, java: tuple[str, ...] = ()) -> None:
    command = ["keytool", *(f"-J{each}" for each in ("-XX:TieredStopAtLevel=1", *java))]
    subprocess.run([*command, *arguments], check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with key stores and trust stores of one certificate, for localhost."""
    if not shutil.which("keytool"):
        pytest.skip("needs keytool, which every JDK has")
    folder = tmp_path_factory.mktemp("stores")
    store = ["-storepass", PASSWORD, "-noprompt"]
    jks = ["-keystore", str(folder / "key.jks"), "-storetype", "JKS"]
    keytool(
        "-genkeypair", *jks, *store, "-keypass", KEY_PASSWORD, "-alias", "node",
        "-keyalg", "EC", "-groupname", "secp256r1",
        "-dname", "CN=node", "-ext", "san=dns:localhost",
    )  # fmt: skip
    exported = str(folder / "node.crt")
    keytool("-exportcert", *jks, *store, "-alias", "node", "-file", exported)
    for name, kind in (("trust.jks", "JKS"), ("trust.p12", "PKCS12")):
        given = ["-keystore", str(folder / name), "-storetype", kind, *store]
        keytool("-importcert", *given, "-alias", "ca", "-file", exported)
    for name, java in (("key.p12", ()), ("old.p12", ("-Dkeystore.pkcs12.legacy",))):
        keytool(
            "-importkeystore", "-noprompt", "-srckeystore", str(folder / "key.jks"),
            "-srcstorepass", PASSWORD, "-srcalias", "node", "-srckeypass", KEY_PASSWORD,
            "-destkeystore", str(folder / name), "-deststoretype", "PKCS12",
            "-deststorepass", PASSWORD, "-destkeypass", PASSWORD, java=java,
        )  # fmt: skip
    return folder


def key_configs(path: Path, kind: str | None, **more: str) -> dict[str, str]:
    found = {"ssl.keystore.location": str(path), "ssl.keystore.password": PASSWORD}
    if kind is not None:
        found["ssl.keystore.type"] = kind
    return found | {f"ssl.{key}": value for key, value in more.items()}


def trust_configs(path: Path, password: str | None = PASSWORD) -> dict[str, str]:
    found = {"ssl.truststore.location": str(path)}
    return found if password is None else found | {"ssl.truststore.password": password}


@pytest.mark.parametrize("kind", [None, "JKS", "PKCS12"])
def test_stores_of_both_forms_are_read_whatever_their_type_says(stores: Path, kind: str | None):
    key_password = {"key.password": KEY_PASSWORD}
    for name, more in (("key.jks", key_password), ("key.p12", {}), ("old.p12", {})):
        server = server_context(read_tls_settings(key_configs(stores / name, kind, **more).get))
        for trust in ("trust.jks", "trust.p12"):
            client = client_context(read_tls_settings(trust_configs(stores / trust).get))
            assert spoken(server, client)[0] == "TLSv1.3"


def test_a_jks_trust_store_needs_no_password(stores: Path):
    client = client_context(read_tls_settings(trust_configs(stores / "trust.jks", None).get))
    assert client.cert_store_stats()["x509"] == 1


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        (
            "key.jks",
            {"keystore.password": "wr0ng"},
            "the password is wrong, or the file is damaged",
        ),
        ("key.jks", {"key.password": "wr0ng"}, "the password of the private key is wrong"),
        ("key.jks", {}, "the password of the private key is wrong"),
        ("key.p12", {"keystore.password": "wr0ng"}, "the password is wrong"),
        ("trust.jks", {}, "expected one private key, found 0"),
        ("trust.p12", {}, "expected one private key with its certificate, found none"),
        ("node.crt", {}, "the password is wrong, or the file is not a PKCS12 store"),
    ],
)
def test_what_cannot_be_used_is_named(stores: Path, name: str, changes: dict[str, str], said: str):
    given = key_configs(stores / name, None) | {f"ssl.{k}": v for k, v in changes.items()}
    with pytest.raises(TlsConfigError, match=name) as caught:
        server_context(read_tls_settings(given.get))
    assert said in str(caught.value)
    assert "wr0ng" not in str(caught.value)


def test_a_cut_or_damaged_store_is_an_error(stores: Path):
    whole = (stores / "trust.jks").read_bytes()
    for end in range(len(whole)):
        with pytest.raises(StoreError):
            read_binary_trust_store(whole[:end], PASSWORD)
    damaged = bytearray(whole)
    damaged[-30] ^= 1
    with pytest.raises(StoreError, match="damaged"):
        read_binary_trust_store(bytes(damaged), PASSWORD)
    path = stores / "trust.bad"
    path.write_bytes(bytes(byte ^ 1 for byte in whole[:4]) + whole[4:])
    with pytest.raises(TlsConfigError, match=r"trust\.bad"):
        client_context(read_tls_settings(trust_configs(path).get))


def test_other_forms_are_named():
    with pytest.raises(StoreError, match="JCEKS"):
        read_binary_trust_store(bytes.fromhex("cececece") + bytes(100), None)
    with pytest.raises(StoreError, match="neither a JKS nor a PKCS12"):
        read_binary_key_store(b"-----BEGIN", "", None)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_store_or_a_store_error(data: bytes):
    for start in (b"", bytes.fromhex("feedfeed00000002"), b"\x30"):
        for read in (
            lambda whole: read_binary_trust_store(whole, None),
            lambda whole: read_binary_key_store(whole, "", None),
        ):
            try:
                read(start + data)
            except StoreError:
                continue


def test_a_chain_is_sent_in_order(tmp_path: Path):
    """PKCS12 files have no order: the node's certificate comes first, then those above it."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import NoEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

    from tests.support.certificates import Authority, named

    root = Authority(tmp_path / "root", "root")
    middle = root.subordinate("middle")
    key = ec.generate_private_key(ec.SECP256R1())
    own = middle.sign(named("node"), key.public_key())
    data = serialize_key_and_certificates(
        b"node", key, own, [root.certificate, middle.certificate], NoEncryption()
    )
    found = read_binary_key_store(data, "", None)
    subjects = [ssl.PEM_cert_to_DER_cert(each) for each in found.certificates]
    from cryptography.hazmat.primitives.serialization import Encoding

    expected = [own, middle.certificate, root.certificate]
    assert subjects == [each.public_bytes(Encoding.DER) for each in expected]
