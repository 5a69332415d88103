"""The Makefile: its targets, and that it installs once. A recording Python stands in for the real one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

TARGETS = (
    *("help", "run", "test", "lint", "types", "unit", "integration", "conformance-router"),
    *(
        "conformance-http2",
        "build",
        "image-build",
        "build-image",
        "bench",
        "soak",
        "options",
        "protos",
        "clean",
        "distclean",
    ),
)

#: Records how it is called, answers `-c` (the version check) truly, and makes a venv of nothing but itself.
STAND_IN = """#!/bin/sh
echo "$*" >> '{log}'
case "$1 $2 $3" in
    '-c '*) exec '{python}' "$@" ;;
    '-m venv '*) mkdir -p .venv/bin && cp "$0" .venv/bin/python && exit {venv_status} ;;
    '-m pip '*) exit {pip_status} ;;
esac
"""


def run_make(
    *arguments: str, cwd: Path = ROOT, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    # Variables that make itself, or a person, has set must not reach the Makefile under test.
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return subprocess.run(
        ["make", *arguments],
        cwd=cwd,
        env={**kept, "LC_ALL": "C", **(environ or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class Checkout:
    """A fresh clone, as far as the Makefile can tell, and the record of what it made Python do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "clone"
        self.folder.mkdir()
        self._log = folder / "log"
        self._stand_in = folder / "recording-python"
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(ROOT / name, self.folder)
        self.becomes()

    def becomes(self, venv_status: int = 0, pip_status: int = 0) -> None:
        """Set the exit codes of `-m venv` and, for a venv made from now on, of `-m pip`."""
        text = STAND_IN.format(
            log=self._log, python=sys.executable, venv_status=venv_status, pip_status=pip_status
        )
        self._stand_in.write_text(text)
        self._stand_in.chmod(0o755)

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_make(*arguments, f"PYTHON={self._stand_in}", cwd=self.folder)

    def done(self) -> list[str]:
        """What Python was made to do since the last call, the version check aside."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        return [line for line in lines if line.startswith("-m ") or not line.startswith("-")]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


VENV = "-m venv --clear .venv"
PIP = "-m pip install --quiet --disable-pip-version-check -e "
SERVE = "-m llmdsim --port 8000 --model Qwen/Qwen3-0.6B"


@pytest.mark.parametrize("arguments", [(), ("help",)])
def test_help_is_the_default_and_lists_every_target(arguments: tuple[str, ...]) -> None:
    child = run_make(*arguments)
    assert child.returncode == 0
    assert re.findall(r"^  ([a-z0-9-]+) +[a-z]", child.stdout, re.MULTILINE) == [*TARGETS]


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_can_be_shown_without_being_made(checkout: Checkout, target: str) -> None:
    child = checkout.make("--dry-run", target)
    assert (child.returncode, child.stderr) == (0, "")
    assert checkout.done() == []


def test_run_installs_once_and_serves(checkout: Checkout) -> None:
    assert checkout.make("run").returncode == 0
    assert checkout.done() == [VENV, f"{PIP}.", SERVE]
    assert checkout.make("run").returncode == 0
    assert checkout.done() == [SERVE]


def test_run_passes_the_model_the_port_and_any_flags(checkout: Checkout) -> None:
    checkout.make("run", "MODEL=a model", "PORT=8001", "ARGS=--mode echo -v=5")
    assert checkout.done()[-1] == "-m llmdsim --port 8001 --model a model --mode echo -v=5"


def test_variables_may_come_from_the_environment() -> None:
    child = run_make("--dry-run", "run", environ={"MODEL": "m/n", "PORT": "9"})
    assert "--port '9' --model 'm/n'" in child.stdout


def test_soak_takes_the_minutes_and_any_flags(checkout: Checkout) -> None:
    checkout.make("soak")
    assert checkout.done()[-1] == "bench/soak.py --minutes 5"
    checkout.make("soak", "MINUTES=0.5", "SOAK_ARGS=--clients 8 --seed 2")
    assert checkout.done() == ["bench/soak.py --minutes 0.5 --clients 8 --seed 2"]


def test_test_installs_the_extras_once_and_runs_every_check(checkout: Checkout) -> None:
    checks = ["-m ruff check", "-m ruff format --check", "-m mypy", "-m pytest -n 5 --dist loadfile"]
    assert checkout.make("test", "WORKERS=5").returncode == 0
    assert checkout.done() == [VENV, f"{PIP}.[test]", *checks]
    assert checkout.make("test", "WORKERS=5").returncode == 0
    assert checkout.done() == checks
    assert checkout.make("run").returncode == 0
    assert checkout.done() == [SERVE]


def test_test_after_run_adds_the_extras(checkout: Checkout) -> None:
    checkout.make("run")
    checkout.done()
    checkout.make("unit", "PYTEST_ARGS=-x")
    assert checkout.done() == [f"{PIP}.[test]", "-m pytest -m not integration -x"]


def test_a_changed_project_file_installs_anew(checkout: Checkout) -> None:
    checkout.make("run")
    checkout.done()
    stamp = (checkout.folder / ".venv" / ".installed").stat().st_mtime
    os.utime(checkout.folder / "pyproject.toml", (stamp + 10, stamp + 10))
    checkout.make("run")
    assert checkout.done() == [f"{PIP}.", SERVE]


def test_a_failed_installation_is_tried_again(checkout: Checkout) -> None:
    checkout.becomes(pip_status=1)
    assert checkout.make("run").returncode != 0
    assert checkout.done() == [VENV, f"{PIP}."]
    assert checkout.make("run").returncode != 0
    assert checkout.done() == [f"{PIP}."]


def test_an_unfinished_venv_is_not_kept(checkout: Checkout) -> None:
    """As left by Debian's Python without python3-venv."""
    checkout.becomes(venv_status=1)
    assert checkout.make("run").returncode != 0
    assert not (checkout.folder / ".venv").exists()
    checkout.becomes()
    assert checkout.make("run").returncode == 0


def test_a_failed_check_fails_the_target(checkout: Checkout) -> None:
    checkout.make("lint")
    python = checkout.folder / ".venv" / "bin" / "python"
    python.write_text(python.read_text() + 'case "$*" in *mypy*) exit 3 ;; esac\n')
    assert checkout.make("lint").returncode == 0
    checkout.done()
    assert checkout.make("test").returncode != 0
    assert "-m pytest" not in checkout.done()


def test_too_old_a_python_is_refused_in_one_clear_line(checkout: Checkout, tmp_path: Path) -> None:
    old = tmp_path / "python3.10"
    pretend = "import sys; sys.version_info = (3, 10, 4, 'final', 0)"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{pretend}\n$2"\n')
    old.chmod(0o755)
    child = run_make("run", f"PYTHON={old}", cwd=checkout.folder)
    assert child.returncode != 0
    said, made = child.stderr.splitlines()
    assert said.startswith(f"llmdsim needs Python 3.11 or newer, and {old} is 3.10.4")
    assert made.startswith("make: ***")
    assert not (checkout.folder / ".venv").exists()


def test_a_python_that_is_not_there_is_told(checkout: Checkout) -> None:
    child = run_make("run", "PYTHON=python9.9", cwd=checkout.folder)
    assert child.returncode != 0
    assert "Python 3.11 or newer, and python9.9 was not found" in child.stderr


@pytest.mark.parametrize(
    ("variables", "platform", "tag"),
    [
        (("TARGETARCH=amd64",), "linux/amd64", "localhost/llmdsim:dev"),
        (("TARGETARCH=arm64", "SIM_TAG=v1"), "linux/arm64", "localhost/llmdsim:v1"),
        (("TARGETARCH=arm64", "REGISTRY=ghcr.io/me"), "linux/arm64", "ghcr.io/me/llmdsim:dev"),
        (("TARGETARCH=arm64", "IMAGE_TAG_BASE=a.b/c"), "linux/arm64", "a.b/c:dev"),
        (("TARGETARCH=arm64", "IMG=x/y:z", "SIM_TAG=no"), "linux/arm64", "x/y:z"),
        (("TARGETARCH=s390x", "TARGETOS=windows"), "windows/s390x", "localhost/llmdsim:dev"),
    ],
)
@pytest.mark.parametrize("target", ["image-build", "build-image"])
def test_the_image_is_named_by_the_variables(
    target: str, variables: tuple[str, ...], platform: str, tag: str
) -> None:
    child = run_make(target, "CONTAINER_TOOL=echo", *variables)
    assert child.stdout == f"build --platform {platform} --tag {tag} .\n"


@pytest.mark.parametrize(("machine", "arch"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("arm64", "arm64")])
def test_the_image_is_for_this_machine_unless_said(machine: str, arch: str, tmp_path: Path) -> None:
    uname = tmp_path / "uname"
    uname.write_text(f"#!/bin/sh\necho {machine}\n")
    uname.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    child = run_make("image-build", "CONTAINER_TOOL=echo", environ={"PATH": path})
    assert child.stdout.startswith(f"build --platform linux/{arch} ")


def test_options_are_written_only_when_they_could_be_made(checkout: Checkout) -> None:
    page = checkout.folder / "docs" / "options.md"
    page.parent.mkdir()
    page.write_text("old")
    checkout.make("help", "lint")
    python = checkout.folder / ".venv" / "bin" / "python"
    plain = python.read_text()
    python.write_text(plain + "echo half a page; exit 1\n")
    assert checkout.make("options").returncode != 0
    assert page.read_text() == "old"
    python.write_text(plain + "echo a page\n")
    assert checkout.make("options").returncode == 0
    assert page.read_text() == "a page\n"


def test_clean_keeps_the_venv_and_distclean_does_not(checkout: Checkout) -> None:
    left = [
        checkout.folder / name for name in ("dist", "llmdsim/__pycache__", "twisted/plugins", ".mypy_cache")
    ]
    for folder in (*left, checkout.folder / ".venv", checkout.folder / "tests", checkout.folder / "bench"):
        folder.mkdir(parents=True)
    (checkout.folder / "twisted/plugins/dropin.cache").touch()
    assert checkout.make("clean").returncode == 0
    remaining = {str(path.relative_to(checkout.folder)) for path in checkout.folder.rglob("*")}
    kept = {"Makefile", "pyproject.toml", "llmdsim", "twisted", "twisted/plugins", "tests", "bench"}
    assert remaining == {*kept, ".venv"}
    assert checkout.make("distclean").returncode == 0
    assert not (checkout.folder / ".venv").exists()


def test_continuous_integration_runs_make_test_from_anywhere(checkout: Checkout, tmp_path: Path) -> None:
    script = checkout.folder / ".ci" / "run"
    script.parent.mkdir()
    shutil.copy(ROOT / ".ci" / "run", script)
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\necho "$PWD: $*"; exit 7\n')
    make.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    child = subprocess.run(
        ["bash", script], cwd="/", env={"PATH": path}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (child.returncode, child.stdout) == (7, f"{checkout.folder}: test\n")
