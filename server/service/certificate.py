"""When a certificate ends, read from its DER: enough of X.509 (RFC 5280, section 4.1) to warn in time, and no more.

Given up: a library for certificates, which would be the heaviest package of the server for one date.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

_SEQUENCE, _INTEGER, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x30, 0x02, 0x17, 0x18, 0xA0


def not_after(pem: str) -> datetime:
    """The end of the first certificate of a PEM file; raises ValueError when there is none that can be read."""
    begin = pem.find("-----BEGIN CERTIFICATE-----")
    end = pem.find("-----END CERTIFICATE-----", begin)
    if begin < 0 or end < 0:
        raise ValueError("no certificate in it")
    der = ssl.PEM_cert_to_DER_cert(pem[begin:end] + "-----END CERTIFICATE-----\n")
    try:
        return _validity_end(der)
    except IndexError:
        raise ValueError("the certificate is cut off") from None


def _validity_end(der: bytes) -> datetime:
    at, _ = _enter(der, 0, _SEQUENCE)  # Certificate
    at, _ = _enter(der, at, _SEQUENCE)  # TBSCertificate
    if der[at] == _VERSION:
        at = _skip(der, at)
    for tag in (_INTEGER, _SEQUENCE, _SEQUENCE):  # serial number, signature algorithm, issuer
        _enter(der, at, tag)
        at = _skip(der, at)
    at, _ = _enter(der, at, _SEQUENCE)  # Validity
    at = _skip(der, at)  # notBefore
    tag = der[at]
    begin, end = _enter(der, at, tag)
    text = der[begin:end].decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year, 50 to 99 being of the last century
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("the certificate's time has no known form")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _enter(der: bytes, at: int, tag: int) -> tuple[int, int]:
    """Begin and end of the content of the element at `at`."""
    if der[at] != tag:
        raise ValueError(f"not a certificate: tag {der[at]:#x} where {tag:#x} should be")
    size = der[at + 1]
    begin = at + 2
    if size >= 0x80:
        count = size & 0x7F
        size = int.from_bytes(der[begin : begin + count], "big")
        begin += count
    if begin + size > len(der):
        raise IndexError(at)
    return begin, begin + size


def _skip(der: bytes, at: int) -> int:
    return _enter(der, at, der[at])[1]
