"""The certificates of a local cluster: valid for its hosts, and issued again when necessary."""

import datetime
import stat

import pytest
from cryptography import x509

from sparkraft.cli import local_certificates
from sparkraft.cli.errors import CommandError
from sparkraft.cli.local_certificates import LocalAuthority
from sparkraft.cli.private_files import escaped, write_private
from sparkraft.server.properties import parse_properties

HOSTS = ("localhost", "127.0.0.1")


def names_of(path) -> set[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return {str(name.value) for name in found.value}


def test_a_certificate_is_kept_while_it_is_valid(tmp_path):
    path = LocalAuthority(tmp_path).renew("node-1", HOSTS)
    before = path.read_text()
    assert names_of(path) == set(HOSTS)
    assert LocalAuthority(tmp_path).renew("node-1", HOSTS[:1]).read_text() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_new_host_needs_a_new_certificate(tmp_path):
    path = LocalAuthority(tmp_path).renew("node-1", HOSTS)
    authority = (tmp_path / "ca.pem").read_text()
    LocalAuthority(tmp_path).renew("node-1", [*HOSTS, "kafka1.example", "::1"])
    assert names_of(path) == {*HOSTS, "kafka1.example", "::1"}
    assert (tmp_path / "ca.pem").read_text() == authority


def test_a_certificate_is_renewed_before_it_expires(tmp_path, monkeypatch):
    monkeypatch.setattr(local_certificates, "NODE_DAYS", local_certificates.RENEWAL_DAYS)
    path = LocalAuthority(tmp_path).renew("node-1", HOSTS)
    monkeypatch.undo()
    LocalAuthority(tmp_path).renew("node-1", HOSTS)
    left = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    assert left - datetime.datetime.now(datetime.UTC) > datetime.timedelta(days=300)


def test_a_certificate_of_another_authority_is_replaced(tmp_path):
    path = LocalAuthority(tmp_path).renew("node-1", HOSTS)
    for name in ("ca.key", "ca.pem"):
        (tmp_path / name).unlink()
    LocalAuthority(tmp_path).renew("node-1", HOSTS)
    issuer = x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
    x509.load_pem_x509_certificate(path.read_bytes()).verify_directly_issued_by(issuer)


def test_an_authority_without_its_key_is_not_replaced(tmp_path):
    LocalAuthority(tmp_path).renew("node-1", HOSTS)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(CommandError, match="cannot be read"):
        LocalAuthority(tmp_path).renew("node-1", HOSTS)


def test_an_open_file_becomes_private_when_it_is_replaced(tmp_path):
    path = tmp_path / "f"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("value", ["plain", "c:\\temp", "größe", "𝄞", "two\nlines"])
def test_any_value_is_read_from_properties_as_it_was(value):
    text = f"key={escaped(value)}\n"
    assert text.isascii()
    read = parse_properties(text)["key"]
    assert read.encode("utf-16", "surrogatepass").decode("utf-16") == value
