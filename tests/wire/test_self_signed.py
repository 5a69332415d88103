"""A certificate of our own: who may be reached by it, for how long, and what it is good for."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from llmdsim.wire.self_signed import self_signed
from llmdsim.wire.tls import Encryption, context_of
from tests.wire.channel import Server, whole
from tests.wire.tls_rig import TLSClient, trusting

NOW = datetime.now(UTC)
NAMES = ("localhost", "127.0.0.1", "::1", "node-7", "10.1.2.3", "node-7")
MATERIAL = self_signed(NAMES, NOW)
CERTIFICATE = x509.load_pem_x509_certificate(MATERIAL.certificates)


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_trusts_it_reaches_the_server_by_any_of_its_names(name: str) -> None:
    encryption = Encryption(context_of(MATERIAL))
    TLSClient(Server(whole), encryption, trusting(MATERIAL.certificates), name).shake_hands()


@pytest.mark.parametrize("name", ["example.com", "10.1.2.4", "a.localhost", "::2"])
def test_and_by_no_other(name: str) -> None:
    encryption = Encryption(context_of(MATERIAL))
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        TLSClient(Server(whole), encryption, trusting(MATERIAL.certificates), name).shake_hands()


def test_strict_clients_take_it_too() -> None:
    """Python 3.13 has these checks made unless told otherwise."""
    context = trusting(MATERIAL.certificates)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    TLSClient(Server(whole), Encryption(context_of(MATERIAL)), context).shake_hands()


def test_names_are_not_repeated() -> None:
    extension = CERTIFICATE.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert [str(name.value) for name in extension.value] == list(dict.fromkeys(NAMES))


def test_it_is_for_a_year_and_for_clocks_that_are_slow() -> None:
    assert CERTIFICATE.not_valid_before_utc <= NOW - timedelta(hours=1)
    assert timedelta(days=300) < CERTIFICATE.not_valid_after_utc - NOW < timedelta(days=398)


def test_it_is_a_servers_and_no_ca() -> None:
    assert isinstance(CERTIFICATE.public_key(), ec.EllipticCurvePublicKey)
    assert CERTIFICATE.public_key().curve.name == "secp256r1"
    constraints = CERTIFICATE.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca) == (True, False)
    usage = CERTIFICATE.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    assert list(usage.value) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_no_two_are_alike() -> None:
    other = self_signed(NAMES, NOW)
    assert other.key != MATERIAL.key
    assert x509.load_pem_x509_certificate(other.certificates).serial_number != CERTIFICATE.serial_number
