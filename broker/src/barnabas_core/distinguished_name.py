"""Format the subject of a certificate as Java does (RFC 2253), because it becomes the name of the principal.

The bytes that OpenSSL has verified are parsed directly, because stricter parsers reject names that real authorities
issue.
"""

from collections.abc import Iterator
from typing import Final

_KEYWORDS: Final = {
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
_ENCODINGS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "ascii", 0x1E: "utf-16-be"}
"""The encodings of ASN.1 string types by their tags."""
_ESCAPED: Final = ',=+<>#;"\\'


_VERSION: Final = 0xA0
"""The ASN.1 tag of the field with a certificate's version; certificates of version 1 lack the field."""
_SUBJECT: Final = 4
"""The index of the subject among the fields after the version: serial number, algorithm, issuer, validity, subject."""


def subject_of(certificate_der: bytes) -> bytes:
    """Return the DER-encoded Name of a certificate's subject."""
    ((_, certificate, _),) = _elements(certificate_der)
    _, to_be_signed, _ = next(_elements(certificate))
    return [whole for tag, _, whole in _elements(to_be_signed) if tag != _VERSION][_SUBJECT]


def rfc2253(name_der: bytes) -> str:
    """Return a DER-encoded Name as text, the last attribute first; types without a keyword become OID=#DER."""
    ((_, names, _),) = _elements(name_der)
    parts = ["+".join(map(_attribute, _elements(part))) for _, part, _ in _elements(names)]
    return ",".join(reversed(parts))


def _elements(der: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the tag, the content and the whole encoding of each DER element in a sequence of elements."""
    position = 0
    while position < len(der):
        start, tag, length = position, der[position], der[position + 1]
        position += 2
        if length > 0x7F:
            size = length & 0x7F
            length = int.from_bytes(der[position : position + size], "big")
            position += size
        yield tag, der[position : position + length], der[start : position + length]
        position += length


def _attribute(element: tuple[int, bytes, bytes]) -> str:
    (_, oid, _), (tag, content, whole) = _elements(element[1])
    name = _oid(oid)
    keyword, encoding = _KEYWORDS.get(name), _ENCODINGS.get(tag)
    if keyword is None or encoding is None:
        return f"{keyword or name}=#{whole.hex()}"
    return f"{keyword}={_escaped(content.decode(encoding, 'replace'))}"


def _oid(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    inner = text.strip(" ")
    leading = len(text) - len(text.lstrip(" ")) if inner else len(text)
    trailing = len(text) - leading - len(inner)
    escaped = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in inner)
    return "\\ " * leading + escaped + "\\ " * trailing
