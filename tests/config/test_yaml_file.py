"""The YAML file: values as a person would write them, and mistakes named with their line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.config import Config, ConfigError, LoraModule, parse
from llmdsim.config.yaml_file import read_yaml_file

Parse = Callable[[str], Config]


@pytest.fixture
def parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parse:
    """Parse a file with the given text; it is called c.yaml."""
    monkeypatch.chdir(tmp_path)

    def run(text: str) -> Config:
        Path("c.yaml").write_text(text, encoding="utf-8")
        return parse(["m", "--config", "c.yaml"], {})

    return run


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("port: 8001", "port", 8001),
        ('port: "8001"', "port", 8001),
        ("max_num_seqs: 7", "max_num_seqs", 7),
        ("max-model-len: 4k", "max_model_len", 4000),
        ("seed: -5", "seed", -5),
        ("seed:", "seed", None),
        ("log-http: true", "log_http", True),
        ("log-http: no", "log_http", False),
        ("log-http: off", "log_http", False),
        ("logtostderr: 'false'", "logtostderr", False),
        ("no-enable-prefix-caching: true", "enable_prefix_caching", False),
        ("disable-sleep-mode: false", "enable_sleep_mode", True),
        ("time-to-first-token: 100ms", "time_to_first_token", 0.1),
        ("time-to-first-token: 100", "time_to_first_token", 0.1),
        ("time-to-first-token: 0", "time_to_first_token", 0.0),
        ("inter-token-latency: 2.5", "inter_token_latency", 0.0025),
        ('inter-token-latency: "12ms"', "inter_token_latency", 0.012),
        ("shutdown-timeout: 30", "shutdown_timeout", 30.0),
        ("time-factor-under-load: 2", "time_factor_under_load", 2.0),
        ("global-cache-hit-threshold: 0.8", "global_cache_hit_threshold", 0.8),
        ("hash-seed: 42", "hash_seed", "42"),
        ("hash-seed: 007", "hash_seed", "007"),
        ("hash-seed: 1_0", "hash_seed", "1_0"),
        ("hash-seed: yes", "hash_seed", "yes"),
        ("hash-seed: 2024-01-01", "hash_seed", "2024-01-01"),
        ("hash-seed: 'null'", "hash_seed", "null"),
        ("zmq-endpoint:", "zmq_endpoint", "tcp://127.0.0.1:5557"),
        ("zmq-endpoint: null", "zmq_endpoint", "tcp://127.0.0.1:5557"),
        ("zmq-endpoint: ~", "zmq_endpoint", "tcp://127.0.0.1:5557"),
        ('zmq-endpoint: ""', "zmq_endpoint", ""),
        ("v: 4", "v", 4),
        ("log_file: /x", "log_file", "/x"),
        ("served-model-name: a", "served_model_name", ("a",)),
        ("served-model-name: [a, 1.10]", "served_model_name", ("a", "1.10")),
        ("served-model-name:\n- a\n- b", "served_model_name", ("a", "b")),
        ("served-model-name:\n-\n- b", "served_model_name", ("b",)),
        ("served-model-name: []", "served_model_name", ("m",)),
        ("failure-types: rate_limit", "failure_types", ("rate_limit",)),
        ("failure-types:", "failure_types", ()),
        ("api-key: 123", "api_key", ("123",)),
        ("allowed-origins: [http://a, '*']", "allowed_origins", ("http://a", "*")),
        ("allowed-origins:\n- http://a", "allowed_origins", ("http://a",)),
        ("allowed-origins: '[\"http://a\"]'", "allowed_origins", ("http://a",)),
        ("allowed-headers: []", "allowed_headers", ()),
        ("lora-modules: a=/x", "lora_modules", (LoraModule("a", "/x"),)),
        (
            'lora-modules:\n- \'{"name": "a"}\'\n- b=/y',
            "lora_modules",
            (LoraModule("a"), LoraModule("b", "/y")),
        ),
        ("lora-modules:\n- name: a\n  path: /x", "lora_modules", (LoraModule("a", "/x"),)),
        ("lora-modules: {name: a, base_model_name: m}", "lora_modules", (LoraModule("a", "", "m"),)),
        ("fake-metrics: '{\"running-requests\": 1}'", "fake_metrics", {"running-requests": 1}),
        (
            "fake-metrics:\n  running-requests: oscillate:0:10:5s\n  kv-cache-usage: 0.4\n"
            "  ttft-buckets-values: [1, 0]\n"
            '  loras:\n  - \'{"running": "a"}\'\n  - {running: b, timestamp: 1700000000}',
            "fake_metrics",
            {
                "running-requests": "oscillate:0:10:5s",
                "kv-cache-usage": 0.4,
                "ttft-buckets-values": [1, 0],
                "loras": ['{"running": "a"}', {"running": "b", "timestamp": 1700000000}],
            },
        ),
        ("fake-metrics: {a_b: 1, a-b: 2}", "fake_metrics", {"a_b": 1, "a-b": 2}),
        ("fake-metrics: {1: 2024-01-01}", "fake_metrics", {"1": "2024-01-01"}),
        ("ec-transfer-config: {ec_connector: X}", "ec_transfer_config", {"ec_connector": "X"}),
        ("port: &p 7\ndata-parallel-size: 1\nkv-cache-size: *p", "kv_cache_size", 7),
        ("<<: {port: 7}\nv: 1", "port", 7),
        ("<<: {port: 7}\nport: 8", "port", 8),
    ],
)
def test_reads(parsed: Parse, text: str, field: str, value: object) -> None:
    assert getattr(parsed(text), field) == value


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "~\n"])
def test_an_empty_file_sets_nothing(parsed: Parse, text: str) -> None:
    assert parsed(text).given == {"model", "config"}


def test_keys_without_a_value_are_not_given(parsed: Parse) -> None:
    assert "port" not in parsed("port:\n").given


def test_flags_of_vllm_are_keys_too(parsed: Parse) -> None:
    config = parsed(
        "dtype: auto\ntrust_remote_code: true\ncompilation-config: {mode: 3}\nno-async-scheduling: true\n"
    )
    assert config.ignored_flags == ("dtype", "trust-remote-code", "compilation-config", "async-scheduling")
    assert config.given == {"model", "config"}


def test_ignored_flags_of_both_sources_are_named_once(parsed: Parse) -> None:
    Path("c.yaml").write_text("dtype: auto\n")
    config = parse(["m", "--gpu-memory-utilization", "0.9", "--dtype=half", "--config", "c.yaml"], {})
    assert config.ignored_flags == ("dtype", "gpu-memory-utilization")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\n", "c.yaml:1: key 'a' is not known"),
        ("v: 1\nprot: 1\n", "c.yaml:2: key 'prot' is not known; did you mean port?"),
        ("max_seqs_num: 1\n", "c.yaml:1: key 'max_seqs_num' is not known; did you mean max-num-seqs?"),
        ("lora: x\n", "c.yaml:1: key 'lora' is not known any more; its name is lora-modules now"),
        (
            "max-running-requests: 3\n",
            "c.yaml:1: key 'max-running-requests' is not known any more; its name is max-num-seqs now",
        ),
        ("? [a, b]\n: 1\n", "c.yaml:1: a key is not text"),
        ('"a\\nb": 1\n', "c.yaml:1: key 'a\\nb' is not known"),
        ("-tp: 1\n", "c.yaml:1: key '-tp' is not known"),
        ("config: d.yaml\n", "c.yaml:1: config: a file cannot name another"),
        ("port: 1\nv: 2\nport: 3\n", "c.yaml:3: key 'port' is there twice"),
        ("max-loras: 1\nmax_loras: 3\n", "c.yaml:2: key 'max_loras' is there twice"),
        ("fake-metrics:\n  loras: []\n  loras: []\n", "c.yaml:3: key 'loras' is there twice"),
        ("dtype: a\ndtype: b\n", "c.yaml:2: key 'dtype' is there twice"),
        ("port: 70000\n", "c.yaml:1: port: '70000' is not an integer from 1 to 65535"),
        ("v: 2\n\nport: [1]\n", "c.yaml:3: port: [1] is not an integer from 1 to 65535"),
        ("port: {a: 1}\n", "c.yaml:1: port: {'a': 1} is not an integer from 1 to 65535"),
        ("model: [a]\n", "c.yaml:1: model: ['a'] is not UTF-8 text"),
        ("mode: loud\n", "c.yaml:1: mode: 'loud' is not one of random, echo"),
        ("log-http: maybe\n", "c.yaml:1: log-http: 'maybe' is not true or false"),
        (
            "time-to-first-token: .inf\n",
            "c.yaml:1: time-to-first-token: '.inf' is not a duration such as 250ms or 1m30s "
            "(a bare number is milliseconds)",
        ),
        (
            "time-factor-under-load: .nan\n",
            "c.yaml:1: time-factor-under-load: '.nan' is not a number from 1 to 1000000",
        ),
        (
            "fake-metrics: [1]\n",
            "c.yaml:1: fake-metrics: [1] is not a JSON or YAML object, or a file of one "
            "(@path, or .json, .yaml, .yml)",
        ),
        ("fake-metrics: {a: !x 1}\n", "c.yaml:1: could not determine a constructor for the tag '!x'"),
        ("- port\n", "c.yaml: not a mapping of options to values"),
        ("port\n", "c.yaml: not a mapping of options to values"),
        ("port: [1\n", None),
        ("a: b: c\n", None),
        ("port: 1\n---\nport: 2\n", None),
        ("\x00", None),
        ("\tport: 1", None),
    ],
)
def test_refuses_in_one_line(parsed: Parse, text: str, message: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    if message is None:  # YAML's own words
        assert str(caught.value).startswith("c.yaml")
        assert str(caught.value).isprintable()
    else:
        assert str(caught.value) == message


def test_a_deep_file_is_an_error(parsed: Parse) -> None:
    with pytest.raises(ConfigError):
        parsed("fake-metrics: " + "{a: " * 5000 + "1" + "}" * 5000)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    path = str(tmp_path / "none.yaml")
    with pytest.raises(ConfigError) as caught:
        parse(["m", "--config", path], {})
    assert str(caught.value) == f"--config: cannot read {path!r}: No such file or directory"


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_an_unreadable_file_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"^--config: cannot read "):
        parse(["m", "--config", f"{tmp_path}/{name}"], {})


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"model: \xff\n")
    with pytest.raises(ConfigError, match=r"^--config: cannot read "):
        parse(["m", "--config", str(path)], {})


def test_an_empty_name_is_no_file() -> None:
    assert parse(["m", "--config="], {}).config == ""


@pytest.mark.parametrize("argv", [["--config", "a", "--config", "b"], ["--config=", "--config=b"]])
def test_two_files_are_an_error(argv: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"^--config: given twice"):
        parse(["m", *argv], {})


@pytest.mark.parametrize("argv", [["--config", "c.yaml", "-v", "5"], ["--config=c.yaml", "-v", "5"]])
def test_flags_after_the_file_do_not_hide_it(parsed: Parse, argv: list[str]) -> None:
    Path("c.yaml").write_text("port: 7\n")
    config = parse(["m", *argv], {})
    assert (config.port, config.v) == (7, 5)


@given(st.text(max_size=60))
def test_any_file_parses_or_is_a_config_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        read_yaml_file(str(path))
    except ConfigError as error:
        message = str(error)
    else:
        message = ""
    assert message.isprintable(), "one line, fit for a terminal"
