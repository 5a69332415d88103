"""The configuration as data for people: `shown`, `--help`, docs/options.md and the example file."""

from pathlib import Path

import msgspec
import pytest

from llmdsim.config import OPTIONS, Config, help_text, options_markdown, parse, shown
from llmdsim.config.help import NOT_YET

ROOT = Path(__file__).parents[2]

EFFECTIVE = {
    "config",
    "port",
    "host",
    "listen",
    "model",
    "served-model-name",
    "max-num-seqs",
    "max-waiting-queue-length",
    "max-model-len",
    "max-request-body-size-mb",
    "mode",
    "seed",
    "time-to-first-token",
    "keep-alive-timeout",
    "pod-name",
}


def test_shows_every_option_in_order() -> None:
    assert list(shown(Config(model="m"))) == list(OPTIONS)


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        ([], "model", "m"),
        ([], "served-model-name", ["m"]),
        ([], "seed", None),
        ([], "max-cpu-loras", 1),
        ([], "time-to-first-token", "0s"),
        ([], "api-key", []),
        (["--time-to-first-token", "250"], "time-to-first-token", "250ms"),
        (["--render-timeout", "60s"], "render-timeout", "1m0s"),
        (["--time-factor-under-load", "1.5"], "time-factor-under-load", 1.5),
        (["--seed", "9223372036854775807"], "seed", 2**63 - 1),
        (["--api-key", "a", "b"], "api-key", ["********", "********"]),
        (["--pod-name", "p"], "pod-name", "p"),
        (["--fake-metrics", '{"a": [1]}'], "fake-metrics", {"a": [1]}),
        (["--lora-modules", "a=/x"], "lora-modules", [{"name": "a", "path": "/x", "base_model_name": None}]),
    ],
)
def test_shows(argv: list[str], name: str, value: object) -> None:
    assert shown(parse(["m", *argv], {}))[name] == value


def test_what_is_shown_is_json() -> None:
    config = parse(["m", "--api-key", "s3cret", "--lora-modules", "a=/x"], {"VLLM_SERVER_DEV_MODE": "1"})
    text = msgspec.json.encode(shown(config))
    assert b"s3cret" not in text
    assert msgspec.json.decode(text) == shown(config)


def help_entry(name: str) -> str:
    """The lines of `--help` about one option, joined."""
    lines = help_text().splitlines()
    start = next(
        at for at, line in enumerate(lines) if f"--{name}" in line.split() and line.startswith("  -")
    )
    end = next(
        at for at in range(start + 1, len(lines) + 1) if at == len(lines) or not lines[at].startswith("   ")
    )
    return " ".join(" ".join(lines[start:end]).split())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("port", "--port N Port to listen on. [1 to 65535; default 8000]"),
        ("max-num-seqs", "[at least 1; default 5]"),
        ("mode", "One of random, echo. [default random]"),
        ("block-size", "One of 8, 16, 32, 64, 128. [default 16]"),
        ("hash-seed", "[$PYTHONHASHSEED]"),
        ("served-model-name", "--served-model-name TEXT ... Names"),
        ("time-to-first-token", "--time-to-first-token TIME Time to the first token. [default 0s]"),
        ("tensor-parallel-size", "-tp, --tensor-parallel-size N"),
        ("v", "-v, --v N"),
        ("logtostderr", "[default on]"),
        ("omni", "--omni Answer"),
        ("max-tool-call-integer-param", "[default 100]"),
    ],
)
def test_help_says(name: str, words: str) -> None:
    assert words in help_entry(name)


@pytest.mark.parametrize("name", OPTIONS)
def test_help_has_every_option_and_marks_what_is_to_come(name: str) -> None:
    assert (NOT_YET in help_entry(name)) != OPTIONS[name].effective


def test_options_in_use_are_effective() -> None:
    assert {name for name, option in OPTIONS.items() if option.effective} >= EFFECTIVE


def test_help_fits_a_terminal() -> None:
    assert max(map(len, help_text().splitlines())) <= 110
    assert help_text().isascii()


def test_the_page_of_options_is_current() -> None:
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert page == options_markdown(), "run: python -m llmdsim.config > docs/options.md"


def test_the_example_file_parses_and_so_does_what_it_offers(tmp_path: Path) -> None:
    text = (ROOT / "etc" / "llmdsim.yaml").read_text(encoding="utf-8")
    path = tmp_path / "example.yaml"
    path.write_text(text)
    assert parse(["--config", str(path)], {}).max_model_len == 8192
    lines = [
        line[2:] if line.startswith("# ") and offered(line[2:]) else line
        for line in text.splitlines(keepends=True)
    ]
    path.write_text("".join(lines))
    config = parse(["--config", str(path)], {})
    assert config.served_model_name == ("qwen", "default")
    assert [module.name for module in config.lora_modules] == ["tweet-summary-0", "tweet-summary-1"]
    assert config.prefill_time_per_token == 0.00025


def test_the_example_says_which_options_do_nothing_yet() -> None:
    text = (ROOT / "etc" / "llmdsim.yaml").read_text(encoding="utf-8")
    for line in text.splitlines():
        name = line.removeprefix("# ").partition(":")[0]
        if name in OPTIONS:
            assert ("not yet effective" in line) is (not OPTIONS[name].effective), line


def offered(line: str) -> bool:
    """Whether a comment of the example is an option to uncomment, or a line that belongs to one."""
    return line.split(":", maxsplit=1)[0].replace("_", "-") in OPTIONS or line.startswith(("- ", "  "))
