"""A certificate of our own, for servers that were given none."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from llmdsim.wire.tls import Material

#: Before it is made, for clients whose clocks are slow; and after.
BACKDATED, LASTS = timedelta(days=1), timedelta(days=365)


def self_signed(names: Iterable[str], now: datetime) -> Material:
    """A new key, on P-256, and the certificate of a server that is known by `names`: addresses or host names.

    It is no CA, so a client that trusts it trusts nothing else by that.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "llmdsim, self-signed")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LASTS)
        .add_extension(x509.SubjectAlternativeName([_name(each) for each in dict.fromkeys(names)]), False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )
    certificate = builder.sign(key, hashes.SHA256())
    return Material(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)
