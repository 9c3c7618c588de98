"""A certificate authority for tests: key stores of nodes and clients as PEM files."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOSTS = ("localhost", "127.0.0.1")
OF_SERVERS, OF_CLIENTS = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
VALID_DAYS = (-1, 30)
"""From when until when, from now."""


def named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class Authority:
    """Signs certificates; its own is in `ca_path`."""

    def __init__(
        self, directory: Path, name: str = "test authority", *, above: "Authority | None" = None
    ) -> None:
        """An authority that signs itself, or that one `above` has signed."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = named(name)
        signer = above or self
        self.certificate = signer.sign(self._name, self._key.public_key(), hosts=(), is_ca=True)
        self.ca_path = directory / "ca.pem"
        self.ca_path.write_bytes(pem(self.certificate))

    @property
    def subject(self) -> x509.Name:
        """The name in its certificate."""
        return self._name

    @property
    def public_key(self) -> ec.EllipticCurvePublicKey:
        """The key that verifies what it signs."""
        return self._key.public_key()

    def subordinate(self, name: str) -> "Authority":
        """An authority below this one."""
        return Authority(self.directory / name, name, above=self)

    def issue(
        self,
        name: str,
        *,
        subject: x509.Name | None = None,
        hosts: Sequence[str] = HOSTS,
        password: bytes | None = None,
        days: tuple[int, int] = VALID_DAYS,
        purpose: x509.ObjectIdentifier | None = None,
    ) -> Path:
        """A file with a new private key (PKCS#8) and its certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.sign(
            subject or named(name), key.public_key(), hosts=hosts, days=days, purpose=purpose
        )
        path = self.directory / f"{name}.pem"
        path.write_bytes(private_pem(key, password) + pem(certificate))
        return path

    def sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        hosts: Sequence[str] = HOSTS,
        is_ca: bool = False,
        days: tuple[int, int] = VALID_DAYS,
        purpose: x509.ObjectIdentifier | None = None,
    ) -> x509.Certificate:
        """A certificate of 30 days, for every purpose by default."""
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + days[0] * day)
            .not_valid_after(now + days[1] * day)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        if purpose is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: ec.EllipticCurvePrivateKey, password: bytes | None) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )


def pem_configs(
    key_store: Path | None, trust_store: Path | None, prefix: str = ""
) -> dict[str, str]:
    """The `ssl.*` configs of these files, each key with `prefix`."""
    found = {}
    for kind, path in (("keystore", key_store), ("truststore", trust_store)):
        if path is not None:
            found[f"{prefix}ssl.{kind}.type"] = "PEM"
            found[f"{prefix}ssl.{kind}.location"] = str(path)
    return found
