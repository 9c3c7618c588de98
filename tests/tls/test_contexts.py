"""Key and trust stores in PEM files and in configs, and what is wrong with others."""

import contextlib
import ssl
import subprocess
from pathlib import Path

import pytest

from sparkraft.security.tls_settings import TlsConfigError, read_tls_settings
from sparkraft.tls.contexts import client_context, server_context
from tests.support.certificates import Authority, pem_configs


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def settings(given: dict[str, str]):
    return read_tls_settings(given.get)


def parts(path: Path) -> tuple[str, str]:
    text = path.read_text()
    at = text.index("-----BEGIN CERTIFICATE")
    return text[:at], text[at:]


def test_files_and_texts_are_read_alike(authority: Authority):
    path = authority.issue("node")
    key, chain = parts(path)
    server_context(settings(pem_configs(path, None)))
    inline = {"ssl.keystore.type": "PEM"}
    inline |= {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain}
    server_context(settings(inline))
    on_one_line = {name: " ".join(text.split("\n")) for name, text in inline.items()}
    server_context(settings(on_one_line))
    trusted = {"ssl.truststore.type": "PEM"}
    trusted["ssl.truststore.certificates"] = authority.ca_path.read_text()
    assert len(client_context(settings(trusted)).get_ca_certs()) == 1


def test_an_encrypted_key_needs_its_password(authority: Authority):
    given = pem_configs(authority.issue("secret", password=b"sesame"), None)
    server_context(settings(given | {"ssl.key.password": "sesame"}))
    with pytest.raises(TlsConfigError, match=r"set ssl\.key\.password"):
        server_context(settings(given))
    with pytest.raises(TlsConfigError, match="the password may be wrong") as caught:
        server_context(settings(given | {"ssl.key.password": "wr0ng"}))
    assert "wr0ng" not in str(caught.value)


def test_what_cannot_be_used_is_named(authority: Authority, tmp_path: Path):
    path = authority.issue("node")
    key, chain = parts(path)
    other_key, _ = parts(authority.issue("other"))
    for text, said in [
        (chain, "expected one private key, found 0"),
        (key + other_key + chain, "expected one private key, found 2"),
        (key, "found no certificate"),
        (other_key + chain, "the first certificate may belong to another key"),
        (key.replace("PRIVATE", "RSA PRIVATE") + chain, "openssl pkcs8 -topk8"),
        (key.replace("\n", "\n*", 1) + chain, "is not base64"),
    ]:
        broken = tmp_path / "broken.pem"
        broken.write_text(text)
        with pytest.raises(TlsConfigError, match=r"broken\.pem") as caught:
            server_context(settings(pem_configs(broken, None)))
        assert said in str(caught.value)
    missing = pem_configs(tmp_path / "none.pem", None)
    with pytest.raises(TlsConfigError, match=r"ssl\.keystore\.location=.*none\.pem: No such file"):
        server_context(settings(missing))
    with pytest.raises(TlsConfigError, match=r"broken\.pem"):
        client_context(settings(pem_configs(None, tmp_path / "broken.pem")))


def test_lines_around_and_inside_entries_are_skipped(authority: Authority, tmp_path: Path):
    """`openssl pkcs12` writes attributes before entries."""
    path = authority.issue("node")
    bundle = tmp_path / "bundle.p12"
    subprocess.run(
        ["openssl", "pkcs12", "-export", "-in", path, "-out", bundle, "-passout", "pass:x"],
        check=True, capture_output=True,
    )  # fmt: skip
    converted = subprocess.run(
        ["openssl", "pkcs12", "-in", bundle, "-passin", "pass:x", "-nodes"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert "Bag Attributes" in converted
    made = tmp_path / "made.pem"
    made.write_text(converted)
    server_context(settings(pem_configs(made, None)))


@pytest.mark.parametrize(
    ("suites", "used"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256")),
        (
            "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256",
            ("TLSv1.3", "TLS_AES_256_GCM_SHA384"),
        ),
    ],
)
def test_cipher_suites_decide_what_is_spoken(authority: Authority, suites: str, used):
    given = pem_configs(authority.issue("node"), None) | {"ssl.cipher.suites": suites}
    server, client = server_context(settings(given)), client_context(trusting(authority))
    assert spoken(server, client) == used


def trusting(authority: Authority):
    return settings(pem_configs(None, authority.ca_path))


def spoken(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[str | None, str]:
    """Version and suite after a handshake in memory; an SSLError if it fails."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
    ]
    left = list(sides)
    for _ in range(10):
        for side in list(left):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
                left.remove(side)
    assert not left
    cipher = sides[1].cipher()
    assert cipher is not None
    return sides[1].version(), cipher[0]


def test_an_intermediate_certificate_is_trusted_by_itself(authority: Authority):
    """As in Java: each certificate of a trust store is an anchor."""
    path = authority.issue("node")
    _, own = parts(path)
    given = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": own}
    context = client_context(settings(given))
    assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
