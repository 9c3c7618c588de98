"""The certificate authority of a local cluster, and the certificates of its nodes.

    ca.pem        certificate of the authority, which nodes and clients trust
    ca.key        its private key (PKCS#8); only `up` and `node start` read it
    node-N.pem    private key and certificate of node N, for both sides of a connection

A node's certificate is valid for `NODE_DAYS`. It is issued again at a start if it has fewer than
`RENEWAL_DAYS` left, lacks a host name, or is of another authority.
"""

from __future__ import annotations

import datetime
import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sparkraft.cli.errors import CommandError
from sparkraft.cli.private_files import write_private

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

AUTHORITY_DAYS = 3_650
NODE_DAYS = 365
RENEWAL_DAYS = 30

_CLOCK_SKEW = datetime.timedelta(days=1)
"""Certificates are valid from this time before now on."""


class LocalAuthority:
    """See the module docstring; the authority is created at its first use."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ca_path = directory / "ca.pem"
        self._key_path = directory / "ca.key"

    def renew(self, name: str, hosts: Iterable[str]) -> Path:
        """Return the file of a node's key and certificate; issue it if necessary.

        Args:
            name: of the node; the certificate's common name.
            hosts: names and addresses that clients and other nodes connect to.

        Raises:
            CommandError: the files of the authority cannot be read.
        """
        certificate, key = self._authority()
        path = self._directory / f"{name}.pem"
        names = {_alternative(host) for host in hosts}
        if not _is_current(path, certificate, names):
            self._issue(path, name, names, (certificate, key))
        return path

    def _authority(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        if not self._key_path.exists() and not self.ca_path.exists():
            return self._create()
        try:
            key = serialization.load_pem_private_key(self._key_path.read_bytes(), None)
            certificate = x509.load_pem_x509_certificate(self.ca_path.read_bytes())
        except (OSError, ValueError) as error:
            raise CommandError(
                f"the certificate authority in {self._directory} cannot be read: {error}"
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise CommandError(f"{self._key_path} is not a key of an elliptic curve")
        return certificate, key

    def _create(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("sparkraft local authority")
        usage = _key_usage(signs_certificates=True)
        own_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            _builder(name, name, key, days=AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(own_key, critical=False)
            .sign(key, hashes.SHA256())
        )
        write_private(self._key_path, _key_text(key))
        self.ca_path.write_text(_text(certificate))
        return certificate, key

    def _issue(
        self,
        path: Path,
        name: str,
        names: set[x509.GeneralName],
        authority: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
    ) -> None:
        issuer, signer = authority
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        certificate = (
            _builder(_name(name), issuer.subject, key, days=NODE_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectAlternativeName(sorted(names, key=repr)), critical=False)
            .add_extension(issuer_key, critical=False)
            .sign(signer, hashes.SHA256())
        )
        write_private(path, _key_text(key) + _text(certificate))


def _is_current(path: Path, issuer: x509.Certificate, names: set[x509.GeneralName]) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        certificate.verify_directly_issued_by(issuer)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except Exception:  # whatever is wrong with it, it is issued again
        return False
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return left > datetime.timedelta(days=RENEWAL_DAYS) and names <= set(found.value)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
