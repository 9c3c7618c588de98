"""Subjects are written as Java's X500Principal does: the expected texts come from a JDK 17."""

import contextlib

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.base.errors import DecodeError
from sparkraft.security.distinguished_name import rfc2253, subject_of
from tests.support.certificates import Authority


def contents(name: x509.Name) -> bytes:
    """What the SEQUENCE of a name holds; names in these tests have less than 64 KB."""
    encoded = name.public_bytes()
    if encoded[1] < 0x80:
        return encoded[2:]
    return encoded[2 + encoded[1] - 0x80 :]


def attribute(kind: ObjectIdentifier, text: str, form: _ASN1Type | None = None):
    return x509.NameAttribute(kind, text, form, _validate=False)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ([(NameOID.COMMON_NAME, "kafka1")], "CN=kafka1"),
        (
            [
                (NameOID.COUNTRY_NAME, "DE"),
                (NameOID.STATE_OR_PROVINCE_NAME, "Bayern"),
                (NameOID.LOCALITY_NAME, "M\u00fcnchen"),
                (NameOID.ORGANIZATION_NAME, "A, B & Co"),
                (NameOID.ORGANIZATIONAL_UNIT_NAME, "x+y"),
                (NameOID.COMMON_NAME, "kafka1"),
            ],
            "CN=kafka1,OU=x\\+y,O=A\\, B & Co,L=M\u00fcnchen,ST=Bayern,C=DE",
        ),
        ([(NameOID.COMMON_NAME, " J\u00fcrgen  #1=;\"q\\ ")],
         "CN=\\ J\u00fcrgen  \\#1\\=\\;\\\"q\\\\\\ "),
        ([(NameOID.EMAIL_ADDRESS, "a@b.de")], "1.2.840.113549.1.9.1=#16066140622e6465"),
        ([(NameOID.SERIAL_NUMBER, "77")], "2.5.4.5=#13023737"),
        ([(NameOID.USER_ID, "u"), (NameOID.DOMAIN_COMPONENT, "org")], "DC=org,UID=u"),
        ([(NameOID.STREET_ADDRESS, "<a>")], "STREET=\\<a\\>"),
    ],
)  # fmt: skip
def test_a_subject_is_written_as_java_writes_it(attributes, text):
    name = x509.Name([attribute(*each) for each in attributes])
    assert rfc2253(contents(name)) == text


def test_the_parts_of_an_element_are_joined():
    element = x509.RelativeDistinguishedName(
        [attribute(NameOID.COMMON_NAME, "a"), attribute(NameOID.ORGANIZATION_NAME, "b")]
    )
    assert rfc2253(contents(x509.Name([element]))) == "CN=a+O=b"


def test_the_subject_of_a_certificate_is_found(tmp_path):
    from cryptography.hazmat.primitives.serialization import Encoding

    authority = Authority(tmp_path, "root")
    assert subject_of(authority.certificate.public_bytes(Encoding.DER)) == "CN=root"


@given(st.binary(max_size=200))
def test_any_bytes_are_a_name_or_a_decode_error(data):
    for read in (subject_of, rfc2253):
        with contextlib.suppress(DecodeError):
            read(data)


def test_every_cut_certificate_is_a_decode_error(tmp_path):
    from cryptography.hazmat.primitives.serialization import Encoding

    whole = Authority(tmp_path).certificate.public_bytes(Encoding.DER)
    for end in range(len(whole)):
        with pytest.raises(DecodeError):
            subject_of(whole[:end])
