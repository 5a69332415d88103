"""The house's import rules, held against every module, and the checker held against bad samples."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "llmdsim"

SIDE_BY_SIDE = ("web", "kvevents", "metrics", "logs")
#: From the top down; a part imports only from rows below its own.
ROWS = (
    ("__main__",),
    ("tap", "dataset"),
    ("services",),
    ("rpc",),
    SIDE_BY_SIDE,
    ("engine",),
    ("reply",),
    ("tokenization",),
    ("config",),
)
ROW_OF = {part: row for row, parts in enumerate(ROWS) for part in parts}

#: wire is a leaf beside the rows; only these know it.
USES_WIRE = {"services", "web", "rpc", "logs"}

#: Parts to which other libraries are closed: they are given the time and never see a socket.
CLOSED = {
    "config": {"twisted", "asyncio"},
    "tokenization": {"twisted", "asyncio"},
    "reply": {"twisted", "asyncio", "socket", "time"},
    "engine": {"twisted", "asyncio", "socket", "time", "datetime", "json", "msgspec"},
}

#: Slow or large to import, so only ever imported by the function that needs them.
WHEN_USED = {"jsonschema", "numpy", "tokenizers", "grpc", "treq"}


class Import(NamedTuple):
    """One imported name: the module it comes from, the line, and whether it runs as the module is loaded."""

    target: str
    line: int
    at_load: bool


def imports_of(source: str, module: str, is_package: bool) -> Iterator[Import]:
    """Every import in `source`, wherever it stands, relative ones resolved against `module`.

    `from a import b` yields `a.b`, since b may be a module.
    """
    parents = module.split(".") if is_package else module.split(".")[:-1]

    def walk(node: ast.AST, at_load: bool) -> Iterator[Import]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                at_load = False
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                for statement in node.body:
                    yield from walk(statement, False)
                for statement in node.orelse:
                    yield from walk(statement, at_load)
                return
            case ast.Import(names=names):
                yield from (Import(alias.name, node.lineno, at_load) for alias in names)
            case ast.ImportFrom(module=base, names=names, level=level):
                start = parents[: len(parents) - level + 1] if level else []
                origin = ".".join([*start, *([base] if base else [])])
                yield from (Import(f"{origin}.{alias.name}", node.lineno, at_load) for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__" | "namedAny")
                | ast.Attribute(attr="import_module" | "namedAny"),
                args=[ast.Constant(value=str(target)), *_],
            ):
                yield Import(target, node.lineno, at_load)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, at_load)

    yield from walk(ast.parse(source), True)


def part_of(module: str) -> str:
    """The part of the house a module of llmdsim belongs to; "" is the package's own `__init__`."""
    return module.partition(".")[2].partition(".")[0]


def fault(part: str, imported: Import) -> str | None:
    """What is wrong with one import made in `part`, or None."""
    library, *_ = imported.target.split(".")
    if library != "llmdsim":
        if library in CLOSED.get(part, ()):
            return f"{part} is closed to {library}"
        if library in WHEN_USED and imported.at_load and part != "testing":
            return f"{library} is imported where it is used, never as a module is loaded"
        return None
    target = part_of(imported.target)
    if part in (target, "testing"):
        return None
    if target == "wire":
        return None if part in USES_WIRE else f"{part} may not import wire"
    if part == "wire":
        return "wire is a leaf and imports nothing of llmdsim"
    if target not in ROW_OF:
        # A name of the package itself, like __version__.
        known = target == "" or (target.startswith("__") and target != "__main__")
        return None if known else f"{target} may not be imported by {part}"
    if part not in ROW_OF:
        return f"{part or 'llmdsim/__init__.py'} may import nothing of llmdsim"
    if ROW_OF[target] == ROW_OF[part]:
        return f"{part} and {target} are side by side"
    return f"{target} is above {part}" if ROW_OF[target] < ROW_OF[part] else None


def faults(source: str, module: str, is_package: bool = False) -> list[str]:
    """Every breach in one module, as `module:line: what`."""
    part = part_of(module)
    if part not in {"", "wire", "testing", *ROW_OF}:
        return [f"{module}: {part} has no place in the house"]
    found = ((imported.line, fault(part, imported)) for imported in imports_of(source, module, is_package))
    return [f"{module}:{line}: {what}" for line, what in dict.fromkeys(found) if what]


def modules() -> dict[str, Path]:
    """Every module of the package, by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        names = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
    return found


def test_no_module_breaks_the_rules() -> None:
    found = modules()
    assert {"llmdsim", "llmdsim.tap", "llmdsim.engine", "llmdsim.wire", "llmdsim.config"} <= found.keys()
    breaches = [
        breach
        for module, path in found.items()
        for breach in faults(path.read_text(), module, path.name == "__init__.py")
    ]
    assert not breaches, "\n".join(breaches)


@pytest.mark.parametrize(
    ("module", "source", "what"),
    [
        ("llmdsim.config.table", "import llmdsim.reply", "reply is above config"),
        (
            "llmdsim.tokenization.chat",
            "from llmdsim.reply.author import Author",
            "reply is above tokenization",
        ),
        ("llmdsim.reply.echo", "from llmdsim import engine", "engine is above reply"),
        ("llmdsim.reply.echo", "from ..engine import stats", "engine is above reply"),
        ("llmdsim.reply.echo", "from .. import engine", "engine is above reply"),
        (
            "llmdsim.engine.stats",
            "def late():\n    from llmdsim.metrics import table",
            "metrics is above engine",
        ),
        (
            "llmdsim.engine.stats",
            "if TYPE_CHECKING:\n    from llmdsim.web import chat",
            "web is above engine",
        ),
        ("llmdsim.engine.stats", "import_module('llmdsim.services')", "services is above engine"),
        ("llmdsim.engine.stats", "importlib.import_module('llmdsim.tap')", "tap is above engine"),
        ("llmdsim.web.chat", "from llmdsim.metrics import render", "web and metrics are side by side"),
        ("llmdsim.web.chat", "import llmdsim.rpc.calls", "rpc is above web"),
        ("llmdsim.services.clock", "import llmdsim.tap", "tap is above services"),
        ("llmdsim.tap", "import llmdsim.__main__", "__main__ is above tap"),
        ("llmdsim.wire.http1", "from llmdsim.config import Config", "wire is a leaf"),
        ("llmdsim.wire.http1", "from llmdsim import __version__", "wire is a leaf"),
        ("llmdsim.engine.engine", "from llmdsim.wire import sse", "engine may not import wire"),
        ("llmdsim.metrics.families", "from llmdsim.wire import sse", "metrics may not import wire"),
        ("llmdsim.tap", "from llmdsim.wire import http1", "tap may not import wire"),
        ("llmdsim.web.chat", "from llmdsim.testing import fixtures", "testing may not be imported"),
        ("llmdsim", "from llmdsim.config import Config", "may import nothing of llmdsim"),
        ("llmdsim.utils.strings", "", "utils has no place in the house"),
        ("llmdsim.helpers", "", "helpers has no place in the house"),
        ("llmdsim.engine.engine", "from twisted.internet import reactor", "engine is closed to twisted"),
        ("llmdsim.config.parse", "import twisted.python.usage", "config is closed to twisted"),
        ("llmdsim.reply.author", "def f():\n    import twisted", "reply is closed to twisted"),
        ("llmdsim.tokenization.builtin", "from twisted import logger", "tokenization is closed to twisted"),
        ("llmdsim.engine.pacing", "from time import monotonic", "engine is closed to time"),
        ("llmdsim.tokenization.hf", "import tokenizers", "tokenizers is imported where it is used"),
        ("llmdsim.web.chat", "class A:\n    import numpy.random", "numpy is imported where it is used"),
        (
            "llmdsim.rpc.calls",
            "try:\n    import grpc\nexcept ImportError:\n    pass",
            "grpc is imported where",
        ),
        ("llmdsim.services.dataset", "if True:\n    from treq import get", "treq is imported where"),
    ],
)
def test_a_breach_is_found(module: str, source: str, what: str) -> None:
    found = faults(source, module)
    assert len(found) == 1
    assert what in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("llmdsim.tap", "from llmdsim.services import rank\nfrom llmdsim.config import Config"),
        (
            "llmdsim.services.rank",
            "from llmdsim.web import x\nfrom llmdsim.wire import y\nimport llmdsim.engine",
        ),
        ("llmdsim.web.chat", "from llmdsim.wire.sse import frame\nfrom llmdsim.reply import Reply"),
        ("llmdsim.web.chat", "from . import errors\nfrom llmdsim import __version__"),
        ("llmdsim.engine.engine", "from .stats import Stats\nfrom llmdsim.config import Config"),
        ("llmdsim.tokenization.hf", "def load():\n    import tokenizers"),
        ("llmdsim.engine.draw", "if TYPE_CHECKING:\n    import numpy"),
        (
            "llmdsim.wire.http1",
            "from twisted.internet.protocol import Protocol\nfrom .request import Request",
        ),
        ("llmdsim.testing.fixtures", "import treq\nfrom llmdsim.tap import makeService"),
        ("llmdsim.reply.author", "import timeit, twistedish"),
    ],
)
def test_a_rightful_import_passes(module: str, source: str) -> None:
    assert faults(source, module) == []


def test_a_package_resolves_its_relative_imports_against_itself() -> None:
    assert faults("from .stats import Stats", "llmdsim.engine", is_package=True) == []
    assert faults("from ..web import chat", "llmdsim.engine", is_package=True) == [
        "llmdsim.engine:1: web is above engine"
    ]


@pytest.mark.parametrize(
    ("rows", "kept_out"),
    [
        (("config", "tokenization", "reply", "engine"), {"twisted"}),
        # `services` with its modules is what the daemon runs, and so loads all that is below.
        (("__main__", "tap", "services"), {"numpy", "tokenizers", "grpc", "google", "treq", "jinja2"}),
    ],
)
def test_nothing_is_loaded_by_way_of_others(rows: tuple[str, ...], kept_out: set[str]) -> None:
    """The rules above see one module at a time; this sees what importing them brings along."""
    names = [name for name in modules() if part_of(name) in rows]
    assert len(names) >= len(rows)
    code = f"import sys\nfor name in {names!r}: __import__(name)\nprint(*sys.modules)"
    child = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    loaded = set(child.stdout.split())
    assert set(names) <= loaded
    assert not kept_out & loaded
