r"""The subject of an X.509 certificate as Java writes it: `X500Principal.getName()` (RFC 2253).

    Certificate = SEQUENCE { tbsCertificate = SEQUENCE { [0] version?, serial, algorithm, issuer,
                             validity, subject, … }, … }
    subject     = SEQUENCE OF SET OF SEQUENCE { type OID, value }

Access control lists name users by this text, so it must equal Java's in every character:

* the last element comes first;
* types other than CN, C, O, OU, L, ST, STREET, DC and UID are numbers, and their values are the
  hexadecimal form of the encoded value: `1.2.840.113549.1.9.1=#160378406f`;
* `, = + < > # ; " \\` are escaped with a backslash wherever they are.

Invariant: malformed bytes raise `DecodeError`; nothing is read twice, so the work is linear.
"""

from collections.abc import Iterator

from sparkraft.base.errors import DecodeError

_SEQUENCE = 0x30
_SET = 0x31
_VERSION = 0xA0
_OID = 0x06

_STRINGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""Tags whose values Java writes as text: UTF8, Printable, T61, IA5, General and BMP strings."""

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The types that RFC 2253 names."""

_ESCAPED = frozenset(',=+<>#;"\\')
_PADDING = " \r"

_LONG_FORM = 0x80
_LENGTH_BYTES_MAX = 4


def subject_of(certificate: bytes) -> str:
    """The distinguished name of a certificate's subject; "" if it is empty.

    Args:
        certificate: its DER encoding.

    Raises:
        DecodeError: it is not a certificate.
    """
    tag, whole, _ = _read(certificate, 0)
    _expect(tag, _SEQUENCE, "certificate")
    tag, signed, _ = _read(whole, 0)
    _expect(tag, _SEQUENCE, "tbsCertificate")
    fields = _elements(signed)
    tag, _ = next(fields, (0, b""))
    before_subject = 4 if tag != _VERSION else 5
    for _ in range(before_subject - 1):
        next(fields, None)
    tag, subject = next(fields, (0, b""))
    _expect(tag, _SEQUENCE, "subject")
    return rfc2253(subject)


def rfc2253(name: bytes) -> str:
    """The text of a distinguished name, given as the contents of its SEQUENCE."""
    parts = []
    for tag, element in _elements(name):
        _expect(tag, _SET, "subject")
        parts.append("+".join(_attribute(*each) for each in _elements(element)))
    return ",".join(reversed(parts))


def _attribute(tag: int, contents: bytes) -> str:
    _expect(tag, _SEQUENCE, "attribute")
    tag, number, end = _read(contents, 0)
    _expect(tag, _OID, "attribute type")
    kind, encoded = _dotted(number), contents[end:]
    tag, value, _ = _read(encoded, 0)
    keyword = _KEYWORDS.get(kind)
    if keyword is None or tag not in _STRINGS:
        return f"{keyword or kind}=#{encoded.hex()}"
    return f"{keyword}={_escape(value.decode('utf-8', 'replace'))}"


def _escape(text: str) -> str:
    core = text.strip(_PADDING)
    lead = text[: len(text) - len(text.lstrip(_PADDING))]
    trail = text[len(lead) + len(core) :]
    escaped = "".join(_escape_character(character) for character in core)
    padded = ["".join(f"\\{each}" for each in blanks) for blanks in (lead, trail)]
    return padded[0] + escaped + padded[1]


def _escape_character(character: str) -> str:
    if character == "\0":
        return "\\00"
    return f"\\{character}" if character in _ESCAPED else character


def _dotted(number: bytes) -> str:
    """An object identifier in decimal."""
    arcs: list[int] = []
    value = 0
    for byte in number:
        value = value << 7 | byte & 0x7F
        if byte < _LONG_FORM:
            arcs.append(value)
            value = 0
    if not arcs or number[-1] >= _LONG_FORM:
        raise DecodeError("an object identifier does not end", path="subject")
    first = min(arcs[0] // 40, 2)
    return ".".join(str(arc) for arc in (first, arcs[0] - first * 40, *arcs[1:]))


def _elements(contents: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and contents of each element of a SEQUENCE or SET."""
    at = 0
    while at < len(contents):
        tag, inner, at = _read(contents, at)
        yield tag, inner


def _read(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Tag, contents and end of the DER element at `at`."""
    if len(data) - at < 2:  # noqa: PLR2004 (a tag and a length)
        raise DecodeError("a certificate ends within an element", at=at)
    tag, length, start = data[at], data[at + 1], at + 2
    if length >= _LONG_FORM:
        size = length - _LONG_FORM
        if not 1 <= size <= _LENGTH_BYTES_MAX:
            raise DecodeError("an element of a certificate has an invalid length", at=at)
        length = int.from_bytes(data[start : start + size], "big")
        start += size
    end = start + length
    if end > len(data):
        raise DecodeError("an element of a certificate exceeds it", at=at)
    return tag, data[start:end], end


def _expect(tag: int, expected: int, path: str) -> None:
    if tag != expected:
        raise DecodeError(f"expected tag {expected:#x}, got {tag:#x}", path=path)
