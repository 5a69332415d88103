"""TLS of a server's ports: where its certificate comes from, and what becomes of it when that changes."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.application.service import Service
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from llmdsim.config import Config, ConfigError

if TYPE_CHECKING:
    from llmdsim.wire.tls import Material

log = Logger()

#: Seconds from one look at the files to the next.
INTERVAL = 1.0

#: Bytes of a file.
MOST = 1 << 20


class Setup(NamedTuple):
    """What all ranks of a server begin with. Paths are absolute, or empty where there is no file."""

    material: Material
    certfile: str
    keyfile: str
    ca_certs: str
    cert_reqs: int
    ciphers: str

    @property
    def files(self) -> list[str]:
        """Those that may change."""
        return [path for path in (self.certfile, self.keyfile, self.ca_certs) if path]

    def read(self) -> Material:
        """What the files have now; raises ConfigError for what is no file to be read."""
        material = self.material
        if self.certfile:
            certificates = _read("--ssl-certfile", self.certfile)
            key = _read("--ssl-keyfile", self.keyfile)
            material = material._replace(certificates=certificates, key=key)
        if self.ca_certs:
            material = material._replace(client_cas=_read("--ssl-ca-certs", self.ca_certs))
        return material


def tls_setup(config: Config) -> Setup | None:
    """What `config` asks for, read or made; None without TLS.

    Raises ConfigError where a file cannot be read. Paths are seen from the working directory.
    """
    if not (config.ssl_certfile or config.self_signed_certs):
        return None
    try:
        from llmdsim.wire.self_signed import self_signed  # noqa: PLC0415 - loads OpenSSL
        from llmdsim.wire.tls import Material  # noqa: PLC0415
    except ImportError as problem:
        raise ConfigError(f"TLS needs pyOpenSSL and cryptography: {problem}") from None
    if config.self_signed_certs:
        material = self_signed(_names(config), datetime.now(UTC))
    else:
        material = Material(b"", b"")
    files = (config.ssl_certfile, config.ssl_keyfile, config.ssl_ca_certs)
    certfile, keyfile, ca_certs = [path and os.path.abspath(path) for path in files]
    setup = Setup(material, certfile, keyfile, ca_certs, config.ssl_cert_reqs, config.ssl_ciphers)
    return setup._replace(material=setup.read())


def _names(config: Config) -> Iterator[str]:
    """What clients may know this server by."""
    yield from ("localhost", "127.0.0.1", "::1")
    name = socket.gethostname()
    if name and name.isascii():
        yield name
    for address in (config.pod_ip, config.host):
        if _is_address(address):
            yield address


def _is_address(text: str) -> bool:
    try:
        return not ipaddress.ip_address(text).is_unspecified
    except ValueError:
        return False


def _read(flag: str, path: str) -> bytes:
    try:
        # What is no file might never be read to its end, or not even opened.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{flag}: {path!r} is no regular file")
            data = file.read(MOST + 1)
    except OSError as problem:
        raise ConfigError(f"{flag}: cannot read {path!r}: {problem.strerror}") from None
    if len(data) > MOST:
        raise ConfigError(f"{flag}: {path!r} is over {MOST} bytes")
    return data


class TLS(Service):
    """Encrypts what comes to ports, by `setup` and then by what its files change to.

    Raises ConfigError where the setup cannot be used. Connections there are keep what they began with.
    `clock` is an `IReactorTime`.
    """

    def __init__(self, setup: Setup, clock: Any) -> None:
        from llmdsim.wire.tls import Encryption  # noqa: PLC0415 - loads OpenSSL

        self._setup = setup
        self._material = setup.material
        self._encryption = Encryption(self._context(setup.material))
        #: The files as last seen, and what was wrong with them if that has not been told.
        self._seen: list[object] = []
        self._untold = ""
        self._watch = LoopingCall(self._look)
        self._watch.clock = clock

    def encrypted(self, site: Factory) -> Factory:
        """A factory for ports whose connections are those of `site`."""
        factory: Factory = self._encryption.of(site)
        return factory

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        self._tell()
        if self._setup.files:
            # The first look sees what changed since the files were read.
            self._watch.start(INTERVAL)

    def stopService(self) -> None:
        super().stopService()  # type: ignore[no-untyped-call]
        if self._watch.running:
            self._watch.stop()

    def reload(self) -> None:
        """Go by what the files have now, or tell why not."""
        self._seen, self._untold = self._stamps(), self._try()
        self._complain()

    def _look(self) -> None:
        stamps = self._stamps()
        if stamps != self._seen:
            self._seen, self._untold = stamps, self._try()
        elif self._untold:
            # They may have been half-way from one pair to another, and so were not complained about. Now they
            # are left alone. They are read again all the same: a stamp need not tell two writes apart.
            self._untold = self._try()
            self._complain()

    def _complain(self) -> None:
        if self._untold:
            log.warn("TLS goes on with what it has: {problem}", problem=self._untold)
            self._untold = ""

    def _try(self) -> str:
        """What is wrong with the files."""
        try:
            material = self._setup.read()
            if material != self._material:
                self._encryption.context = self._context(material)
                self._material = material
                self._tell()
        except ConfigError as problem:
            return str(problem)
        return ""

    def _context(self, material: Material) -> Any:
        from llmdsim.wire.tls import TLSError, context_of  # noqa: PLC0415 - loads OpenSSL

        try:
            return context_of(material, self._setup.cert_reqs, self._setup.ciphers)
        except TLSError as problem:
            raise ConfigError(f"TLS: {problem}") from None

    def _tell(self) -> None:
        from llmdsim.wire.tls import described  # noqa: PLC0415 - loads OpenSSL

        log.info("TLS by the certificate of {what}", what=described(self._material))

    def _stamps(self) -> list[object]:
        """What changes when a file does: itself, or one that a link leads to."""
        return [_stamp(path) for path in self._setup.files]


def _stamp(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError as problem:
        return problem.errno
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
