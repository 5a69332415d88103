"""Shows what h2spec and h2load make of a daemon's HTTP/2, in clear and over TLS."""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.integration.daemon import Daemon

#: Something to GET whose body is not empty: some of the cases need a window to hold it back.
PATH = "/v1/models"
FLAGS = ("--mode", "echo", "--force-dummy-tokenizer", "--max-num-seqs", "256", "--max-model-len", "4096")
PATIENCE = 300.0  # seconds for one run of a tool

#: What must fail in clear: a port shared with HTTP/1.1 answers what is no preface as HTTP/1.1, then closes.
SHARED_PORT = ("http2/3.5", "Sends invalid connection preface")

PROMPT = "Tell me a short story about a brave little fox who lived in the deep green forest " * 4


class Load(NamedTuple):
    """Requests that are all answered with `status` (its hundreds)."""

    name: str
    path: str
    body: dict[str, object] | None
    count: int
    status: int = 2
    #: Of each stream: 2 to this power, less one. A connection has at least the 64 kB it begins with.
    window_bits: int = 30


LOADS = (
    Load("GET /health", "/health", None, 20_000),
    Load("chat", "/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}]}, 4000),
    Load("text, streamed", "/v1/completions", {"prompt": PROMPT, "stream": True}, 4000),
    Load("more than windows of 4 kB", "/v1/completions", {"prompt": PROMPT, "stream": True}, 2000, 2, 12),
    Load("a prompt of 200 kB, refused", "/v1/completions", {"prompt": PROMPT * 600}, 400, 4),
)


class Case(NamedTuple):
    """One of h2spec's cases; `problem` is "" if it passed."""

    section: str
    name: str
    problem: str
    skipped: bool


def cases(report: Path) -> Iterator[Case]:
    """What h2spec reported."""
    for found in ElementTree.parse(report).iter("testcase"):
        problem = next((each for each in found if each.tag in ("error", "failure")), None)
        yield Case(
            found.get("package", ""),
            found.get("classname", ""),
            "" if problem is None else " / ".join((problem.text or "no reason given").split("\n")),
            found.find("skipped") is not None,
        )


def conforms(h2spec: str, daemon: Daemon, tls: bool, *chosen: str) -> bool:
    """Whether every case passes that can; prints those that do not."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        argv = [h2spec, "--strict", "-h", "127.0.0.1", "-p", str(daemon.port), "-P", PATH, *chosen]
        argv += ["--tls", "--insecure"] if tls else []
        done = subprocess.run(
            [*argv, "--junit-report", str(report)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if not report.exists():
            sys.exit(f"h2spec failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        played = list(cases(report))
    failed = [case for case in played if case.problem]
    expected = [] if tls else [case for case in failed if (case.section, case.name) == SHARED_PORT]
    skipped = [case for case in played if case.skipped]
    for case in skipped:
        print(f"  skipped   {case.section} {case.name}")
    for case in failed:
        print(
            f"  {'expected' if case in expected else 'FAILED':9} {case.section} {case.name}: {case.problem}"
        )
    passed = len(played) - len(failed) - len(skipped)
    print(f"  h2spec: {passed} of {len(played)} passed, {len(skipped)} skipped, {len(failed)} failed")
    return bool(played) and failed == expected


def bears(h2load: str, daemon: Daemon, tls: bool) -> bool:
    """Whether every request of every load is answered as it should be."""
    good = True
    scheme = "https" if tls else "http"
    with tempfile.NamedTemporaryFile("w+") as body:
        for load in LOADS:
            url = f"{scheme}://127.0.0.1:{daemon.port}{load.path}"
            windows = ["-w", str(load.window_bits), "-W", str(max(load.window_bits, 16))]
            argv = [h2load, "-n", str(load.count), "-c", "20", "-m", "100", *windows, url]
            if load.body is not None:
                body.seek(0)
                body.truncate()
                json.dump({"model": "m", **load.body}, body)
                body.flush()
                argv += ["-d", body.name, "-H", "content-type: application/json"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
            codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", done.stdout)
            whole = re.search(r"(\d+) done, .*", done.stdout)
            if codes is None or whole is None:
                sys.exit(f"h2load failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
            right = int(codes.group(load.status - 1)) == int(whole.group(1)) == load.count
            good = good and right
            print(f"  {'h2load' if right else 'FAILED':9} {load.name}: {whole.group(0)}; {codes.group(0)}")
    return good


def main(arguments: Sequence[str]) -> int:
    """Play all; the exit code is 1 if anything failed that should not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--h2spec", required=True, help="the command")
    parser.add_argument("--h2load", default="", help="the command; without it nothing is loaded")
    parser.add_argument("cases", nargs="*", help="sections of h2spec, such as http2/6.9 (all)")
    chosen = parser.parse_args(arguments)
    good = True
    for tls in (False, True):
        print("over TLS" if tls else "in clear", flush=True)
        with Daemon(*FLAGS, *(["--self-signed-certs"] if tls else [])) as daemon:
            good = conforms(chosen.h2spec, daemon, tls, *chosen.cases) and good
            if chosen.h2load:
                good = bears(chosen.h2load, daemon, tls) and good
    print("all is well" if good else "something failed")
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OSError as error:
        sys.exit(str(error))
