"""What TLS begins with, and what it makes of files that change, half or whole, well or badly."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from pathlib import Path

import pytest
from cryptography import x509
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from llmdsim.config import ConfigError, parse
from llmdsim.services import tls as tls_module
from llmdsim.services.tls import INTERVAL, MOST, TLS, Setup, tls_setup
from llmdsim.wire.tls import Encryption, Material
from tests.certificates import CA, serial, write_pair
from tests.wire.channel import Server, whole
from tests.wire.tls_rig import TLSClient

ROOT = CA()
FIRST, SECOND, THIRD = ROOT.issue(), ROOT.issue(), ROOT.issue()


def setup_of(*flags: str, **environ: str) -> Setup | None:
    return tls_setup(parse(["--model", "m", *flags], environ))


class TLSRig:
    """TLS by files of `folder`, and the time between looks at them."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.certificate, self.key = write_pair(folder, FIRST)
        setup = setup_of("--ssl-certfile", self.certificate, "--ssl-keyfile", self.key, *flags)
        assert setup is not None
        self.clock = Clock()
        self.tls = TLS(setup, self.clock)
        self.tls.startService()

    def write(self, certificates: bytes | None = None, key: bytes | None = None) -> None:
        for path, data in ((self.certificate, certificates), (self.key, key)):
            if data is not None:
                Path(path).write_bytes(data)

    def look(self, times: int = 1) -> list[str]:
        """What the log has of so many looks."""
        with capturedLogs() as logged:
            for _ in range(times):
                self.clock.advance(INTERVAL)
        return [event["log_level"].name + " " + event["log_format"].format(**event) for event in logged]

    @property
    def serial(self) -> int:
        """That of the certificate which a client is shown now."""
        return serial_of(self.tls)


def serial_of(tls: TLS) -> int:
    encryption: Encryption = tls._encryption
    return TLSClient(Server(whole), encryption).shake_hands().serial


@pytest.fixture
def rig(tmp_path: Path) -> TLSRig:
    return TLSRig(tmp_path)


# --- what it begins with


def test_there_is_none_unless_it_is_asked_for() -> None:
    assert setup_of() is None
    assert setup_of("--ssl-ciphers", "x", "--enable-ssl-refresh") is None


def test_files_are_read_and_known_wherever_the_daemon_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pair(tmp_path, FIRST)
    (tmp_path / "ca.crt").write_bytes(ROOT.pem)
    monkeypatch.chdir(tmp_path)
    flags = ("--ssl-certfile", "tls.crt", "--ssl-keyfile", "tls.key", "--ssl-ca-certs", "ca.crt")
    setup = setup_of(*flags, "--ssl-cert-reqs", "2", "--ssl-ciphers", "ECDHE+AESGCM")
    assert setup == Setup(
        FIRST._replace(client_cas=ROOT.pem),
        *(str(tmp_path / name) for name in ("tls.crt", "tls.key", "ca.crt")),
        2,
        "ECDHE+AESGCM",
    )
    monkeypatch.chdir("/")
    assert setup.read() == setup.material


def names_in(setup: Setup | None) -> list[str]:
    assert setup is not None
    certificate = x509.load_pem_x509_certificate(setup.material.certificates)
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(name.value) for name in extension.value]


HOST = "node-7"


@pytest.mark.parametrize(
    ("flags", "pod_ip", "more"),
    [
        ((), "", []),
        ((), "10.1.2.3", ["10.1.2.3"]),
        ((), "fd00::7", ["fd00::7"]),
        ((), "no-address", []),
        (("--host", "192.0.2.7"), "10.1.2.3", ["10.1.2.3", "192.0.2.7"]),
        (("--host", "0.0.0.0"), "", []),
        (("--host", "::"), "127.0.0.1", []),
    ],
)
def test_a_certificate_of_its_own_has_the_names_it_is_reached_by(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], pod_ip: str, more: list[str]
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: HOST)
    names = names_in(setup_of("--self-signed-certs", *flags, POD_IP=pod_ip))
    assert names == ["localhost", "127.0.0.1", "::1", HOST, *more]


def test_a_host_name_that_no_certificate_can_have_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "büro"):
        monkeypatch.setattr(socket, "gethostname", lambda name=name: name)
        assert names_in(setup_of("--self-signed-certs")) == ["localhost", "127.0.0.1", "::1"]


def test_it_may_be_with_certificates_of_clients(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(ROOT.pem)
    setup = setup_of(
        "--self-signed-certs", "--ssl-ca-certs", str(tmp_path / "ca.crt"), "--ssl-cert-reqs", "1"
    )
    assert setup is not None
    assert setup.material.client_cas == ROOT.pem
    TLS(setup, Clock())


def test_other_processes_begin_with_the_same_certificate() -> None:
    setup = setup_of("--self-signed-certs")
    assert setup is not None
    there = TLS(pickle.loads(pickle.dumps(setup)), Clock())
    assert serial_of(there) == serial(setup.material)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    certificate, key = write_pair(tmp_path, FIRST)
    large, pipe = tmp_path / "large", tmp_path / "pipe"
    large.write_bytes(b"x" * (MOST + 1))
    os.mkfifo(pipe)
    for wrong, told in (
        (tmp_path / "none", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (pipe, "is no regular file"),
        (large, f"is over {MOST} bytes"),
    ):
        for flags in (
            ("--ssl-certfile", str(wrong), "--ssl-keyfile", key),
            ("--ssl-certfile", certificate, "--ssl-keyfile", str(wrong)),
            ("--ssl-certfile", certificate, "--ssl-keyfile", key, "--ssl-ca-certs", str(wrong)),
        ):
            with pytest.raises(ConfigError) as problem:
                setup_of(*flags)
            flag = flags[flags.index(str(wrong)) - 1]
            assert str(problem.value).startswith(f"{flag}: ")
            assert str(wrong) in str(problem.value)
            assert told in str(problem.value)


def test_a_pair_that_is_none_is_told(tmp_path: Path) -> None:
    certificate, _ = write_pair(tmp_path, FIRST)
    _, key = write_pair(tmp_path, SECOND, "other")
    setup = setup_of("--ssl-certfile", certificate, "--ssl-keyfile", key)
    assert setup is not None
    with pytest.raises(ConfigError, match="TLS: the certificate and the key do not belong together"):
        TLS(setup, Clock())


def test_missing_libraries_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("llmdsim.wire.self_signed", "llmdsim.wire.tls"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "OpenSSL", None)
    with pytest.raises(ConfigError, match="TLS needs pyOpenSSL and cryptography: "):
        setup_of("--self-signed-certs")


# --- what changes


def test_nothing_is_told_while_nothing_changes(rig: TLSRig) -> None:
    assert rig.look(5) == []
    assert rig.serial == serial(FIRST)


def test_the_start_tells_of_the_certificate(tmp_path: Path) -> None:
    with capturedLogs() as logged:
        TLSRig(tmp_path)
    assert [event["log_format"].format(**event).partition(",")[0] for event in logged] == [
        f"TLS by the certificate of serial {serial(FIRST):X}"
    ]


def test_a_new_pair_is_used_at_the_next_look(rig: TLSRig) -> None:
    rig.write(SECOND.certificates, SECOND.key)
    assert rig.serial == serial(FIRST)
    (line,) = rig.look()
    assert line.startswith(f"info TLS by the certificate of serial {serial(SECOND):X}, valid until ")
    assert rig.serial == serial(SECOND)
    assert rig.look(3) == []


def test_what_changes_between_the_start_and_the_first_look_counts(tmp_path: Path) -> None:
    certificate, key = write_pair(tmp_path, FIRST)
    setup = setup_of("--ssl-certfile", certificate, "--ssl-keyfile", key)
    assert setup is not None
    write_pair(tmp_path, SECOND)
    tls = TLS(setup, Clock())
    tls.startService()
    assert serial_of(tls) == serial(SECOND)


@pytest.mark.parametrize("first", ["certificate", "key"])
def test_half_of_a_pair_is_waited_for_without_a_word(rig: TLSRig, first: str) -> None:
    halves = {"certificate": {"certificates": SECOND.certificates}, "key": {"key": SECOND.key}}
    rig.write(**halves.pop(first))
    assert rig.look() == []
    assert rig.serial == serial(FIRST)
    rig.write(**halves.popitem()[1])
    assert len(rig.look()) == 1
    assert rig.serial == serial(SECOND)


BAD = [
    ({"certificates": SECOND.certificates}, "the certificate and the key do not belong together"),
    ({"key": b""}, "the key is no PEM"),
    ({"certificates": FIRST.certificates[:100]}, "the certificate is no PEM"),
    ({"key": b"x" * (MOST + 1)}, "is over"),
]


@pytest.mark.parametrize(("files", "told"), BAD)
def test_a_bad_pair_is_told_once_and_the_old_one_kept(
    rig: TLSRig, files: dict[str, bytes], told: str
) -> None:
    rig.write(**files)
    (line,) = rig.look(5)
    assert line.startswith("warn TLS goes on with what it has: ")
    assert told in line
    assert rig.serial == serial(FIRST)
    # Another is told again, and a good one used.
    rig.write(key=b"other")
    assert len(rig.look(5)) == 1
    rig.write(THIRD.certificates, THIRD.key)
    assert len(rig.look(5)) == 1
    assert rig.serial == serial(THIRD)


def test_files_that_go_and_come_back(rig: TLSRig) -> None:
    os.unlink(rig.key)
    (line,) = rig.look(3)
    assert "No such file or directory" in line
    rig.write(key=FIRST.key)
    assert rig.look(3) == []
    os.unlink(rig.certificate)
    rig.look(3)
    rig.write(SECOND.certificates, SECOND.key)
    assert len(rig.look(3)) == 1
    assert rig.serial == serial(SECOND)


def test_what_is_put_in_place_of_a_file_holds_nothing_up(rig: TLSRig) -> None:
    os.unlink(rig.key)
    os.mkfifo(rig.key)
    (line,) = rig.look(3)
    assert "is no regular file" in line


def test_a_write_that_cannot_be_seen_is_found_at_the_second_look(
    rig: TLSRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writes within a tick of the kernel's clock leave the same stamp."""
    rig.write(certificates=SECOND.certificates)
    rig.look()
    seen = iter(rig.tls._seen)
    monkeypatch.setattr(tls_module, "_stamp", lambda path: next(seen))
    rig.write(key=SECOND.key)
    assert len(rig.look()) == 1
    assert rig.serial == serial(SECOND)


def test_secrets_of_kubernetes_change_behind_links(tmp_path: Path) -> None:
    """`tls.crt -> ..data/tls.crt`, `..data -> ..time`, and a change is a new `..data` in its place."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()

    def publish(name: str, material: Material) -> None:
        (mounted / name).mkdir()
        write_pair(mounted / name, material)
        (mounted / "..tmp").symlink_to(name)
        os.rename(mounted / "..tmp", mounted / "..data")

    publish("..one", FIRST)
    for name in ("tls.crt", "tls.key"):
        (mounted / name).symlink_to(f"..data/{name}")
    setup = setup_of("--ssl-certfile", str(mounted / "tls.crt"), "--ssl-keyfile", str(mounted / "tls.key"))
    assert setup is not None
    clock = Clock()
    tls = TLS(setup, clock)
    tls.startService()
    publish("..two", SECOND)
    clock.advance(INTERVAL)
    assert serial_of(tls) == serial(SECOND)


def test_a_rename_that_keeps_the_time_and_the_size_is_seen(rig: TLSRig, tmp_path: Path) -> None:
    status = os.stat(rig.certificate)
    other = tmp_path / "new"
    other.mkdir()
    certificate, key = write_pair(other, SECOND)
    os.utime(certificate, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.rename(certificate, rig.certificate)
    os.rename(key, rig.key)
    assert len(rig.look()) == 1
    assert rig.serial == serial(SECOND)


def test_cas_of_clients_change_too(tmp_path: Path) -> None:
    cas = tmp_path / "ca.crt"
    cas.write_bytes(ROOT.pem)
    rig = TLSRig(tmp_path, "--ssl-ca-certs", str(cas), "--ssl-cert-reqs", "1")
    before = rig.tls._encryption.context
    cas.write_bytes(b"nothing")
    (line,) = rig.look(3)
    assert "the CA of clients is no PEM" in line
    assert rig.tls._encryption.context is before
    cas.write_bytes(CA("other").pem)
    assert len(rig.look(3)) == 1
    assert rig.tls._encryption.context is not before


# --- on SIGHUP


def reloaded(rig: TLSRig) -> list[str]:
    with capturedLogs() as logged:
        rig.tls.reload()
    return [event["log_format"].format(**event) for event in logged]


def test_a_reload_waits_for_no_look(rig: TLSRig) -> None:
    rig.write(SECOND.certificates, SECOND.key)
    assert len(reloaded(rig)) == 1
    assert rig.serial == serial(SECOND)
    assert rig.look(3) == []


def test_a_reload_tells_at_once_what_is_wrong_and_looks_do_not_repeat_it(rig: TLSRig) -> None:
    rig.write(key=SECOND.key)
    (line,) = reloaded(rig)
    assert "do not belong together" in line
    assert rig.look(3) == []
    assert len(reloaded(rig)) == 1
    rig.write(SECOND.certificates)
    assert len(rig.look()) == 1
    assert rig.serial == serial(SECOND)


def test_a_reload_without_files_keeps_the_certificate() -> None:
    setup = setup_of("--self-signed-certs")
    assert setup is not None
    clock = Clock()
    tls = TLS(setup, clock)
    tls.startService()
    tls.reload()
    assert serial_of(tls) == serial(setup.material)
    assert clock.getDelayedCalls() == []
    tls.stopService()


def test_nobody_looks_after_the_end(rig: TLSRig) -> None:
    rig.tls.stopService()
    assert rig.clock.getDelayedCalls() == []
