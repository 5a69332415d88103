"""The values of klog's flags, and the line for wrong ones."""

import pytest

from llmdsim.config import ConfigError, parse
from llmdsim.config.klog import patterns, severity


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("3", 3), ("INFO", 0), ("warning", 1), ("Error", 2), ("FATAL", 3)],
)
def test_severities_are_numbers_or_names(text: str, number: int) -> None:
    assert severity(text) == number
    assert parse(["m", "--stderrthreshold", text, "--alsologtostderrthreshold", text], {}).model == "m"


@pytest.mark.parametrize("flag", ["--stderrthreshold", "--alsologtostderrthreshold"])
@pytest.mark.parametrize("text", ["", "4", "-1", "warn", "1.5", "INFO,ERROR"])
def test_anything_else_is_refused(flag: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{flag}: .* is not a severity"):
        parse(["m", f"{flag}={text}"], {})


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", ()),
        ("drain=4", (("drain", 4),)),
        ("drain=4,web.*=5", (("drain", 4), ("web.*", 5))),
        ("a=0,,b=1,", (("a", 0), ("b", 1))),
    ],
)
def test_verbosity_by_module(text: str, pairs: tuple[tuple[str, int], ...]) -> None:
    assert patterns(text) == pairs


@pytest.mark.parametrize("text", ["drain", "=4", "drain=", "drain=x", "drain=-1", " =1"])
def test_a_wrong_pattern_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--vmodule: .* is not pattern=N"):
        parse(["m", "--vmodule", text], {})
