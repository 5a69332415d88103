"""llm-d-router's side: its consumer, built in a checkout of the router, started and asked."""

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

SOURCE = Path(__file__).with_name("consumer.go")

#: Where the consumer seems to be in the checkout, nothing of which is written to.
PLACE = "cmd/llmdsim-conformance"


def build(checkout: Path, target: Path, go: str) -> None:
    """Build the consumer to `target`, with what the router's go.mod pins."""
    overlay = target.with_suffix(".overlay.json")
    overlay.write_text(json.dumps({"Replace": {str(checkout / PLACE / "main.go"): str(SOURCE)}}))
    command = [go, "build", "-overlay", str(overlay), "-o", str(target), f"./{PLACE}"]
    subprocess.run(command, cwd=checkout, check=True, env={**os.environ, "CGO_ENABLED": "0"})


class Router:
    """The consumer in a process of its own. Use it in a `with`; `flags` are its own."""

    def __init__(self, binary: Path, *flags: str) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(binary), *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> "Router":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Let it end."""
        if self._process.poll() is None:
            self._process.communicate()
        self._log.close()

    @property
    def log(self) -> str:
        """What it has logged, the router's own messages."""
        return os.pread(self._log.fileno(), 1 << 22, 0).decode()

    def add(self, pod: str, rank: int = 0) -> None:
        """Have it dial a server, `address:port`."""
        self._ask({"pod": _named(pod, rank)})

    def remove(self, pod: str) -> None:
        """Have it forget a server."""
        self._ask({"remove": _named(pod)})

    def blocks(self, pod: str, model: str, tokens: Sequence[int], **of: Any) -> int:
        """How many blocks of the tokens, from the first on, the server has; `of` is a salt, or media."""
        blocks: int = self._look(pod, model, tokens, **of).get("blocks", 0)
        return blocks

    def tiers(self, pod: str, model: str, tokens: Sequence[int]) -> dict[str, int]:
        """The same for each kind of memory."""
        tiers: dict[str, int] = self._look(pod, model, tokens).get("tiers", {})
        return tiers

    def _look(self, pod: str, model: str, tokens: Sequence[int], **of: Any) -> dict[str, Any]:
        known = self._ask({"lookup": {"model": model, "tokens": list(tokens), **of}})["pods"]
        found: dict[str, Any] = known.get(pod, {})
        return found

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the consumer ended\n{self.log}"
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, answer
        return answer


def _named(pod: str, rank: int = 0) -> dict[str, Any]:
    address, _, port = pod.rpartition(":")
    return {"address": address, "port": int(port), "rank": rank}
