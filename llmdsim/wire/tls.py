"""TLS on listening ports: what a context is made of, and how connections are encrypted by one."""

from __future__ import annotations

from typing import Any, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from OpenSSL import SSL, crypto
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.protocol import Factory
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from zope.interface import implementer

from llmdsim.wire.site import PROTOCOLS

#: For TLS 1.2, unless others are asked for: forward secrecy and authenticated encryption, as HTTP/2 demands.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"

#: By the number that Python's `ssl` and `--ssl-cert-reqs` have for whether clients need a certificate.
_VERIFY = (SSL.VERIFY_NONE, SSL.VERIFY_PEER, SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT)

#: Memory of idle connections is given back. Clients cannot have keys negotiated again and again.
_MODE = SSL.MODE_RELEASE_BUFFERS
_OPTIONS = SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_CIPHER_SERVER_PREFERENCE


class TLSError(Exception):
    """There can be no TLS by this; `str()` is one clear line."""


class Material(NamedTuple):
    """PEM data: a certificate and those that lead to its root, its key, and the CAs of clients, if any."""

    certificates: bytes
    key: bytes
    client_cas: bytes = b""


def context_of(material: Material, cert_reqs: int = 0, ciphers: str = "") -> SSL.Context:
    """TLS 1.2 or newer by `material`; raises TLSError where that cannot be.

    `cert_reqs` is 0 where clients are asked for no certificate, 1 where they may send one that must be good
    then, 2 where they must. `ciphers` are OpenSSL's list for TLS 1.2.
    """
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_options(_OPTIONS)
    context.set_mode(_MODE)
    # Sessions are resumed by tickets, which take no memory here. Who was verified needs them to have a name.
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_session_id(b"llmdsim")
    try:
        context.set_cipher_list((ciphers or CIPHERS).encode())
    except SSL.Error:
        raise TLSError(f"no cipher for TLS 1.2 in {ciphers!r}") from None
    try:
        _use(context, material)
        if cert_reqs:
            _verify(context, material.client_cas)
            context.set_verify(_VERIFY[cert_reqs])
    except (SSL.Error, crypto.Error, UnsupportedAlgorithm, TypeError, ValueError) as problem:
        raise TLSError(_reason(problem)) from None

    def select(connection: SSL.Connection, offered: list[bytes]) -> object:
        common = [protocol for protocol in PROTOCOLS if protocol in offered]
        return common[0] if common else SSL.NO_OVERLAPPING_PROTOCOLS

    context.set_alpn_select_callback(select)  # type: ignore[arg-type]
    return context


def _use(context: SSL.Context, material: Material) -> None:
    own, *others = _certificates(material.certificates, "the certificate")
    try:
        # Whether an RSA key is sound takes a quarter of a second to find out; that it belongs to the
        # certificate does not.
        key = load_pem_private_key(material.key, None, unsafe_skip_rsa_key_validation=True)
    except TypeError:
        raise TLSError("the key is encrypted, and there is no way to give a password") from None
    except (ValueError, UnsupportedAlgorithm):
        raise TLSError("the key is no PEM that can be read") from None
    # OpenSSL would drop a certificate that is for another kind of key, without a word.
    if own.public_key() != key.public_key():
        raise TLSError("the certificate and the key do not belong together")
    context.use_certificate(own)
    for certificate in others:
        context.add_extra_chain_cert(certificate)
    context.use_privatekey(key)  # type: ignore[arg-type]


def _verify(context: SSL.Context, client_cas: bytes) -> None:
    store: Any = context.get_cert_store()
    for certificate in _certificates(client_cas, "the CA of clients"):
        store.add_cert(crypto.X509.from_cryptography(certificate))
        context.add_client_ca(certificate)


def _certificates(pem: bytes, what: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise TLSError(f"{what} is no PEM that can be read") from None


def _reason(problem: Exception) -> str:
    """What OpenSSL says, in its own words."""
    errors = problem.args[0] if problem.args else ""
    reason = errors[-1][-1] if errors and isinstance(errors, list) else str(problem)
    return f"the certificate or the key cannot be used: {reason}"


def described(material: Material) -> str:
    """What tells a certificate from others, for a log line."""
    own = x509.load_pem_x509_certificates(material.certificates)[0]
    until = own.not_valid_after_utc
    return f"serial {own.serial_number:X}, valid until {until:%Y-%m-%d %H:%M:%S} UTC"


class Encrypted(TLSMemoryBIOProtocol):
    """The transport of an encrypted connection. What is written leaves at once, not with the next turn."""

    transport: Any

    def abortConnection(self) -> None:
        """Close at once, and not as TLS does it: that would tell the client that it has everything."""
        self._aborted = True
        self.disconnecting = True
        self.transport.abortConnection()


class _EncryptedFactory(TLSMemoryBIOFactory):
    protocol = Encrypted


@implementer(IOpenSSLServerConnectionCreator)
class Encryption:
    """Encrypts connections by a `context`; when that is replaced, those that were made before keep theirs."""

    def __init__(self, context: SSL.Context) -> None:
        self.context = context

    def serverConnectionForTLS(self, protocol: object) -> SSL.Connection:
        return SSL.Connection(self.context)

    def of(self, site: Factory) -> Any:
        """A factory whose connections are those of `site`, encrypted."""
        return _EncryptedFactory(self, False, site)
