"""Certificates for tests: a CA, and what it signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from llmdsim.wire.tls import Material


def key_pem(key: Any, password: bytes = b"") -> bytes:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return pem


class CA:
    """Signs; it may itself be signed by `parent`."""

    def __init__(self, name: str = "ca", parent: CA | None = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = (parent or self).sign(self.name, self.key, ca=True)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def sign(self, name: x509.Name, key: Any, ca: bool) -> x509.Certificate:
        now = datetime.now(UTC)
        names = [x509.DNSName("localhost")]
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), True)
            .add_extension(x509.SubjectAlternativeName(names), False)
            .sign(self.key, hashes.SHA256())
        )

    def issue(self, name: str = "localhost", key: Any = None) -> Material:
        """A certificate that is no CA, and its key."""
        if key is None:
            key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self.sign(subject, key, ca=False)
        return Material(certificate.public_bytes(Encoding.PEM), key_pem(key))


def write_pair(folder: Path, material: Material, stem: str = "tls") -> tuple[str, str]:
    """The paths of the certificate and its key, as files."""
    certificate, key = folder / f"{stem}.crt", folder / f"{stem}.key"
    certificate.write_bytes(material.certificates)
    key.write_bytes(material.key)
    return str(certificate), str(key)


def serial(material: Material) -> int:
    """By which certificates are told apart."""
    return x509.load_pem_x509_certificates(material.certificates)[0].serial_number
