"""What is packed, and that `twistd llmdsim` and `llmdsim` work from it with no checkout in sight."""

import ast
import importlib
import importlib.metadata
import json
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import tarfile
import threading
import tomllib
import urllib.request
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import llmdsim

ROOT = Path(__file__).parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = PYPROJECT["project"]

#: Libraries that are part of another's interface: zope.interface of Twisted's, werkzeug of Klein's.
COMES_WITH = {"zope": "twisted", "werkzeug": "klein"}


def canonical(requirement: str) -> str:
    """The distribution's name in a requirement, as indexes compare it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s<>=!~;\[]", requirement, maxsplit=1)[0]).lower()


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built offline by the hatchling that is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-index", "--no-build-isolation", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the wheel installed."""
    folder = tmp_path_factory.mktemp("installed")
    pip("install", "--no-index", "--no-deps", "--target", str(folder), str(wheel))
    return folder


class Installed:
    """Runs Python with the wheel's folder and the installed libraries, but without this checkout.

    `-S` keeps `.pth` files from being read: that is how an editable install gets onto the path.
    """

    def __init__(self, folder: Path, cwd: Path) -> None:
        self._cwd = cwd
        libraries = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SIM_"))},
            "PYTHONPATH": os.pathsep.join([str(folder), *libraries]),
        }

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-S", *arguments],
            cwd=self._cwd,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        with self.start(*arguments) as child:
            out, err = child.communicate(timeout=60)
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)


@pytest.fixture
def python(installed: Path, tmp_path: Path) -> Installed:
    return Installed(installed, tmp_path)


TWISTD: Sequence[str] = ("-c", "from twisted.scripts.twistd import run; run()")


def test_the_wheel_holds_the_package_and_the_plugin_only(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    info = f"llmdsim-{llmdsim.__version__}.dist-info"
    sources = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "llmdsim").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"llmdsim/__main__.py", "llmdsim/tap.py", "llmdsim/py.typed"} <= sources
    # No twisted/__init__.py nor twisted/plugins/__init__.py: they would hide Twisted's own.
    assert {name for name in names if not name.startswith(info)} == {
        *sources,
        "twisted/plugins/llmdsim_plugin.py",
    }
    assert f"{info}/licenses/LICENSE" in names


def test_the_wheel_says_what_it_needs(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    info = f"llmdsim-{llmdsim.__version__}.dist-info"
    assert "llmdsim = llmdsim.__main__:main" in archive.read(f"{info}/entry_points.txt").decode().splitlines()
    metadata = importlib.metadata.PathDistribution(zipfile.Path(archive, f"{info}/"))
    assert metadata.version == llmdsim.__version__
    assert metadata.metadata["Requires-Python"] == ">=3.11"
    assert metadata.metadata["License-Expression"] == "Apache-2.0"
    needed = {canonical(line) for line in metadata.requires or [] if "extra ==" not in line}
    assert needed == {canonical(line) for line in PROJECT["dependencies"]}


def test_the_source_archive_holds_all_that_a_build_needs_and_no_leftovers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.iterdir()
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    wanted = {"pyproject.toml", "README.md", "LICENSE", "Makefile", "Dockerfile", "llmdsim/tap.py"}
    assert {
        *wanted,
        "twisted/plugins/llmdsim_plugin.py",
        "systemd/llmdsim.service",
        "etc/llmdsim.yaml",
    } <= names
    assert not {name for name in names if re.search(r"dropin\.cache|\.venv|__pycache__|\.pyc|_cache/", name)}


def test_the_console_script_runs_from_the_wheel(python: Installed, installed: Path) -> None:
    child = python.run(installed / "bin" / "llmdsim", "--version")
    assert (child.returncode, child.stdout, child.stderr) == (0, f"llmdsim {llmdsim.__version__}\n", "")
    where = python.run("-c", "import llmdsim; print(llmdsim.__file__)")
    assert where.stdout.strip() == str(installed / "llmdsim" / "__init__.py")


def test_the_console_script_writes_no_plugin_cache(wheel: Path, tmp_path: Path) -> None:
    """It would fail to, with a complaint at every start, where the disk is read-only."""
    folder = tmp_path / "unpacked"
    zipfile.ZipFile(wheel).extractall(folder)
    child = Installed(folder, tmp_path).run("-m", "llmdsim", "--help")
    assert child.returncode == 0
    assert "--time-to-first-token" in child.stdout
    assert [path.name for path in (folder / "twisted" / "plugins").iterdir() if path.is_file()] == [
        "llmdsim_plugin.py"
    ]


def test_twistd_lists_the_plugin(python: Installed) -> None:
    child = python.run(*TWISTD, "--help")
    assert child.returncode == 0
    assert re.search(r"^ +llmdsim +A vLLM server without a model", child.stdout, re.MULTILINE)
    assert "Traceback" not in child.stderr


@pytest.mark.parametrize("command", [(*TWISTD, "llmdsim"), ("-m", "twisted", "llmdsim"), ("-m", "llmdsim")])
def test_every_way_to_start_it_reads_the_same_command_line(python: Installed, command: Sequence[str]) -> None:
    version = python.run(*command, "--version")
    assert (version.returncode, version.stdout) == (0, f"llmdsim {llmdsim.__version__}\n")
    wrong = python.run(*command, "--model", "m", "--time-to-first-tokn", "1s")
    assert wrong.returncode == 1
    assert wrong.stdout == ""
    assert len(wrong.stderr.splitlines()) == 1
    assert "--time-to-first-tokn" in wrong.stderr


@pytest.mark.integration
@pytest.mark.parametrize("command", [("-m", "llmdsim"), (*TWISTD, "-n", "--pidfile=", "llmdsim")])
def test_the_daemon_serves_from_the_wheel_and_ends_in_good_order(
    python: Installed, command: Sequence[str], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with python.start(*command, "--model", "my/model", "--port", str(port)) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        guard = threading.Timer(30, child.kill)
        guard.start()
        # The log is read too, or a full pipe would stop the daemon.
        log: list[str] = []
        reader = threading.Thread(target=log.extend, args=(child.stdout,))
        reader.start()
        try:
            announced = next((line for line in child.stderr if "llmdsim serves" in line), "")
            assert f":{port}" in announced, log
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=10) as answer:
                assert [model["id"] for model in json.load(answer)["data"]] == ["my/model"]
            child.send_signal(signal.SIGTERM)
            rest = child.stderr.read()
            assert child.wait() == 0
            assert "Traceback" not in rest
        finally:
            child.kill()
            reader.join()
            guard.cancel()
    assert "Traceback" not in "".join(log)
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_said_once_more_in_the_package() -> None:
    assert PROJECT["version"] == llmdsim.__version__


def test_classifiers_and_the_license_are_what_an_index_accepts() -> None:
    from trove_classifiers import classifiers

    assert set(PROJECT["classifiers"]) <= set(classifiers)
    assert PROJECT["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text.splitlines()[1]
    assert "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["requires-python"] == ">=3.11"


def test_the_entry_point_is_there() -> None:
    assert PROJECT["scripts"].keys() == {"llmdsim"}
    module, _, name = PROJECT["scripts"]["llmdsim"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_every_library_imported_is_asked_for() -> None:
    imported = set()
    for path in (ROOT / "llmdsim").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add((node.module or "").partition(".")[0])
    libraries = imported - sys.stdlib_module_names - {"llmdsim"}
    assert {"twisted", "klein", "msgspec", "yaml"} <= libraries
    extras = [line for lines in PROJECT.get("optional-dependencies", {}).values() for line in lines]
    asked_for = {canonical(line) for line in [*PROJECT["dependencies"], *extras]}
    distributions = importlib.metadata.packages_distributions()
    missing = {
        library
        for library in libraries
        if COMES_WITH.get(library) not in asked_for
        and not asked_for & {canonical(name) for name in distributions.get(library, [library])}
    }
    assert not missing
