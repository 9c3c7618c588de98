"""Random distinguished names are written as a JDK writes them: ACLs depend on each character."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from sparkraft.security.distinguished_name import rfc2253
from tests.security.test_distinguished_name import attribute, contents

KINDS = [
    NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME, NameOID.STATE_OR_PROVINCE_NAME, NameOID.STREET_ADDRESS,
    NameOID.DOMAIN_COMPONENT, NameOID.USER_ID, NameOID.EMAIL_ADDRESS, NameOID.SERIAL_NUMBER,
    NameOID.TITLE, NameOID.GIVEN_NAME,
]  # fmt: skip
FORMS = [_ASN1Type.UTF8String, _ASN1Type.PrintableString, _ASN1Type.IA5String]
LETTERS = [
    "a",
    "Z",
    "0",
    " ",
    ",",
    "=",
    "+",
    "<",
    ">",
    "#",
    ";",
    '"',
    "\\",
    "\r",
    "\n",
    "\0",
    "'",
    "@",
]
BEYOND = ["\u00e9", "\u0416", "\u65e5", "\U0001f600"]


def random_name(dice: random.Random) -> x509.Name:
    elements = []
    for _ in range(dice.randint(0, 5)):
        parts = {}
        for _ in range(dice.choice([1, 1, 1, 2])):
            form = dice.choice(FORMS)
            letters = LETTERS + (BEYOND if form is _ASN1Type.UTF8String else [])
            text = "".join(dice.choices(letters, k=dice.randint(1, 8)))
            kind = dice.choice(KINDS)
            parts[kind] = attribute(kind, text, form)
        elements.append(x509.RelativeDistinguishedName(parts.values()))
    return x509.Name(elements)


def test_random_names_are_written_as_a_jdk_writes_them():
    if not shutil.which("java"):
        pytest.skip("needs a JDK")
    dice = random.Random(7)
    names = [random_name(dice) for _ in range(2_000)]
    printed = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", str(Path(__file__).with_name("PrintNames.java"))],
        input="".join(name.public_bytes().hex() + "\n" for name in names),
        capture_output=True, text=True, check=True, timeout=120,
    ).stdout.splitlines()  # fmt: skip
    expected = [bytes.fromhex(line).decode() for line in printed]
    assert len(expected) == len(names)
    for name, text in zip(names, expected, strict=True):
        assert rfc2253(contents(name)) == text
