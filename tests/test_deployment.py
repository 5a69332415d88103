"""The container and systemd files, read as their engines read them, and run where this machine can."""

import http.server
import json
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmdsim.config import parse
from tests.certificates import CA, write_pair

ROOT = Path(__file__).parent.parent

# --- the container image


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """(INSTRUCTION, arguments) in order: comment lines go, continued lines are joined."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        assert word.isupper(), line
        found.append((word, rest.strip()))
    return found


DOCKERFILE = instructions((ROOT / "Dockerfile").read_text())
LAST_STAGE = DOCKERFILE[max(at for at, (word, _) in enumerate(DOCKERFILE) if word == "FROM") :]


def only(word: str) -> str:
    (arguments,) = (rest for name, rest in LAST_STAGE if name == word)
    return arguments


def test_joined_lines_and_comments_are_understood() -> None:
    sample = "# syntax\nFROM a AS b\n\nRUN x \\\n    # between\n    && y\n"
    assert instructions(sample) == [("FROM", "a AS b"), ("RUN", "x && y")]


def test_both_stages_start_from_the_same_slim_python() -> None:
    sources = [rest.partition(" ")[0] for word, rest in DOCKERFILE if word == "FROM"]
    assert sources == ["python:${PYTHON_VERSION}-slim"] * 2
    assert DOCKERFILE[0] == ("ARG", "PYTHON_VERSION=3.12")


def test_flags_are_given_to_the_image_directly() -> None:
    """An exec-form ENTRYPOINT and no CMD: `docker run IMAGE --port 8000 --model m`, and signals arrive."""
    assert json.loads(only("ENTRYPOINT")) == ["llmdsim"]
    assert not [word for word, _ in LAST_STAGE if word in {"CMD", "SHELL"}]
    assert only("STOPSIGNAL") == "SIGTERM"


def test_the_default_port_is_the_exposed_one() -> None:
    assert int(only("EXPOSE")) == parse(["--model", "m"], {}).port == 8000


def test_the_image_runs_as_a_numeric_user_that_is_not_root() -> None:
    """Kubernetes' runAsNonRoot refuses a user it cannot see to be one."""
    uid, _, gid = only("USER").partition(":")
    assert int(uid) > 0
    assert int(gid) > 0
    words = [word for word, _ in LAST_STAGE]
    assert max(at for at, word in enumerate(words) if word in {"RUN", "COPY"}) < words.index("USER")
    assert words.index("USER") < words.index("ENTRYPOINT")


def test_the_plugin_cache_is_made_by_root_with_bytecode() -> None:
    runs = [rest for word, rest in LAST_STAGE if word == "RUN"]
    assert any("twistd --help" in run for run in runs)
    settings = " ".join(rest for word, rest in LAST_STAGE if word == "ENV")
    assert "PYTHONDONTWRITEBYTECODE" not in settings
    # It would seed the hash of KV-cache blocks.
    assert "PYTHONHASHSEED" not in settings


def test_the_standard_library_is_found_and_compiled(tmp_path: Path) -> None:
    """The RUN line's compileall, read by a shell, and then tried on one module."""
    (run,) = (rest for word, rest in LAST_STAGE if word == "RUN")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" != -c ] || exec {sys.executable} "$@"\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    command = run[run.index("python -m compileall") :]
    child = subprocess.run(
        ["/bin/sh", "-c", command], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    *options, folder = child.stdout.splitlines()
    assert folder == sysconfig.get_path("stdlib")
    library = tmp_path / "library"
    library.mkdir()
    shutil.copy(Path(folder) / "colorsys.py", library)
    subprocess.run([sys.executable, *options, str(library)], check=True)
    assert list(library.rglob("colorsys.*.pyc"))


def kept(path: str, patterns: list[str]) -> bool:
    """Whether the build context holds `path`, by the rules of .dockerignore: the last match decides."""
    held = True
    for pattern in patterns:
        glob = pattern.removeprefix("!")
        shape = re.escape(glob).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
        if re.fullmatch(f"{shape}(?:/.*)?", path):
            held = pattern.startswith("!")
    return held


def test_all_that_is_copied_exists_and_is_in_the_build_context() -> None:
    patterns = [line for line in (ROOT / ".dockerignore").read_text().split() if not line.startswith("#")]
    sources = [
        source
        for word, rest in DOCKERFILE
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    assert {"pyproject.toml", "README.md", "LICENSE", "llmdsim", "twisted", "etc"} <= set(sources)
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert [source for source in sources if not kept(source, patterns)] == []
    assert kept("llmdsim/web/chat.py", patterns)
    for left_out in (
        ".git/config",
        ".venv/bin/python",
        "tests/test_x.py",
        "llmdsim/web/__pycache__/chat.cpython-312.pyc",
        "twisted/plugins/dropin.cache",
    ):
        assert not kept(left_out, patterns)


# --- its health check


class Health(http.server.BaseHTTPRequestHandler):
    """Answers with the server's `status`, and keeps the paths asked for."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append(self.path)
        self.send_response(server.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Any]:
    with http.server.HTTPServer(("127.0.0.1", 0), Health) as listening:
        answering: Any = listening
        answering.status, answering.asked = 200, []
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        yield listening
        listening.shutdown()
        thread.join()


def health_check(process_1: Path, environ: dict[str, str]) -> int:
    """The exit code of the HEALTHCHECK's own command, with `process_1` for /proc/1/cmdline."""
    options, command = only("HEALTHCHECK").split(" CMD ")
    assert set(re.findall(r"--([a-z-]+)=", options)) <= {"interval", "timeout", "start-period", "retries"}
    python, *flags, code = json.loads(command)
    assert python == "python"
    assert "/proc/1/cmdline" in code
    code = code.replace("/proc/1/cmdline", str(process_1))
    child = subprocess.run(
        [sys.executable, *flags, code], env=environ, capture_output=True, timeout=30, check=False
    )
    return child.returncode


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False), (404, False)])
def test_health_is_what_the_server_answers(server: Any, tmp_path: Path, status: int, healthy: bool) -> None:
    server.status = status
    process_1 = tmp_path / "cmdline"
    process_1.write_bytes(b"python\0/opt/llmdsim/bin/llmdsim\0--port\0%d\0--model\0m\0" % server.server_port)
    assert (health_check(process_1, {}) == 0) is healthy
    assert server.asked == ["/health"]


@pytest.mark.parametrize("line", [b"llmdsim\0--port=%d\0", b"llmdsim\0--port\0001\0-x\0--port\0%d\0"])
def test_the_port_is_found_among_the_flags(server: Any, tmp_path: Path, line: bytes) -> None:
    process_1 = tmp_path / "cmdline"
    process_1.write_bytes(line % server.server_port)
    # As a container inherits it from the engine's settings; nobody listens on port 9.
    assert health_check(process_1, {"http_proxy": "http://127.0.0.1:9"}) == 0
    assert server.asked == ["/health"]


def test_the_address_can_be_said(server: Any, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.server_port}/ready"
    assert health_check(tmp_path / "none", {"LLMDSIM_HEALTH_URL": url}) == 0
    assert server.asked == ["/ready"]


@pytest.mark.parametrize("flags", [b"--self-signed-certs", b"--ssl-certfile\0c\0--ssl-keyfile\0k"])
def test_tls_is_found_among_the_flags(tmp_path: Path, flags: bytes) -> None:
    process_1 = tmp_path / "cmdline"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*write_pair(tmp_path, CA().issue()))
    with http.server.HTTPServer(("127.0.0.1", 0), Health) as listening:
        answering: Any = listening
        answering.status, answering.asked = 200, []
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        process_1.write_bytes(b"llmdsim\0--port\0%d\0%b\0" % (listening.server_port, flags))
        assert health_check(process_1, {}) == 0
        listening.shutdown()
        thread.join()
    assert answering.asked == ["/health"]


def test_nobody_listening_is_unhealthy(server: Any, tmp_path: Path) -> None:
    port = server.server_port
    server.shutdown()
    server.server_close()
    assert health_check(tmp_path / "none", {"LLMDSIM_HEALTH_URL": f"http://127.0.0.1:{port}/health"}) != 0


# --- systemd

UNITS = ROOT / "systemd"


def unit(text: str) -> dict[str, dict[str, list[str]]]:
    """A unit's sections, each key with all its values in order; a repeated key adds to a list."""
    sections: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] | None = None
    for line in re.sub(r"\\\n", " ", text).splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        if stripped.startswith("["):
            assert stripped.endswith("]"), line
            section = sections.setdefault(stripped[1:-1], defaultdict(list))
            continue
        key, equals, value = stripped.partition("=")
        assert equals, line
        assert section is not None, line
        section[key.strip()].append(value.strip())
    return sections


SERVICE = unit((UNITS / "llmdsim.service").read_text())
SOCKET = unit((UNITS / "llmdsim.socket").read_text())


def test_repeated_keys_and_comments_are_understood() -> None:
    sample = "# a\n[Service]\nEnvironment=A=1\nEnvironment=B=2 \\\n  C=3\n; b\nPrivateTmp=\n"
    assert unit(sample) == {"Service": {"Environment": ["A=1", "B=2    C=3"], "PrivateTmp": [""]}}


def test_the_service_runs_the_daemon_with_its_configuration() -> None:
    service = SERVICE["Service"]
    (start,) = service["ExecStart"]
    program, *arguments = start.split()
    assert Path(program).is_absolute()
    assert Path(program).name == "llmdsim"
    assert arguments == ["--config", "/etc/llmdsim/llmdsim.yaml"]
    assert service["Type"] == ["exec"]
    assert service["Restart"] == ["on-failure"]
    assert int(service["LimitNOFILE"][0]) >= 2**20


def test_a_stop_leaves_time_to_drain() -> None:
    (seconds,) = SERVICE["Service"]["TimeoutStopSec"]
    assert float(seconds) >= parse(["--model", "m"], {}).shutdown_timeout + 2
    # Only the daemon itself is told; it ends its children.
    assert SERVICE["Service"]["KillMode"] == ["mixed"]


def test_a_wrong_configuration_is_not_tried_for_ever() -> None:
    within = int(SERVICE["Unit"]["StartLimitIntervalSec"][0])
    tries = int(SERVICE["Unit"]["StartLimitBurst"][0])
    assert within > tries * (int(SERVICE["Service"]["RestartSec"][0]) + 2)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("DynamicUser", "yes"),
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        ("PrivateDevices", "yes"),
        ("RestrictNamespaces", "yes"),
        ("SystemCallFilter", "@system-service"),
    ],
)
def test_the_service_is_shut_in(setting: str, value: str) -> None:
    assert SERVICE["Service"][setting] == [value]


def test_the_families_it_listens_on_stay_open() -> None:
    families = set(SERVICE["Service"]["RestrictAddressFamilies"][0].split())
    assert {"AF_INET", "AF_INET6", "AF_UNIX"} <= families


def test_the_socket_stands_for_the_service_s_own() -> None:
    given = SOCKET["Socket"]
    assert given["ListenStream"] == [str(parse(["--model", "m"], {}).port)]
    assert given["Accept"] == ["no"]
    assert given["NoDelay"] == ["yes"]
    assert int(given["Backlog"][0]) == 4096


def test_both_can_be_enabled() -> None:
    assert SERVICE["Install"]["WantedBy"] == ["multi-user.target"]
    assert SOCKET["Install"]["WantedBy"] == ["sockets.target"]


def systemd_analyze(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(
        [program, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Both units, the service with a program that exists here."""
    for name in ("llmdsim.service", "llmdsim.socket"):
        text = (UNITS / name).read_text()
        (tmp_path / name).write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={shutil.which('true')}", text))
    return tmp_path


def test_systemd_finds_nothing_to_say_about_the_units(units: Path) -> None:
    child = systemd_analyze(units, "verify", "./llmdsim.service", "./llmdsim.socket")
    # What it says about this machine's own units is not ours.
    assert [line for line in child.stderr.splitlines() if "llmdsim" in line] == []
    assert child.returncode == 0, child.stderr


def test_systemd_would_say_if_there_were_something(units: Path) -> None:
    """The check above can fail: an unknown key is a warning only, a program that is not there an error."""
    service = units / "llmdsim.service"
    text = service.read_text()
    service.write_text(text.replace("KillMode=", "KilMode="))
    assert "KilMode" in systemd_analyze(units, "verify", "./llmdsim.service").stderr
    service.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/no/such/program", text))
    assert systemd_analyze(units, "verify", "./llmdsim.service").returncode != 0


def test_systemd_rates_the_service_as_little_exposed(units: Path) -> None:
    child = systemd_analyze(units, "security", "--offline=true", "--threshold=25", "./llmdsim.service")
    if "--offline" in child.stderr:
        pytest.skip("this systemd-analyze rates running services only")
    assert child.returncode == 0, child.stdout[-400:] + child.stderr
