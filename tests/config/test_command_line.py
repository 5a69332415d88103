"""The grammar of flags, line by line."""

import pytest

from llmdsim import __version__
from llmdsim.config import Config, ConfigError, HelpRequested, LoraModule, VersionRequested, parse

DOCUMENT = "a JSON or YAML object, or a file of one (@path, or .json, .yaml, .yml)"


def given(*argv: str) -> Config:
    """The configuration of a command line that also names a model."""
    return parse(["--model", "m", *argv], {})


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        # --x v and --x=v; underscores as dashes; the last of several
        (["--port", "8001"], "port", 8001),
        (["--port=8001"], "port", 8001),
        (["--max_num_seqs", "7"], "max_num_seqs", 7),
        (["--max_num-seqs=7"], "max_num_seqs", 7),
        (["--port", "1", "--port=2", "--port", "3"], "port", 3),
        (["--hash-seed=a=b"], "hash_seed", "a=b"),
        (["--hash-seed", ""], "hash_seed", ""),
        (["--zmq-endpoint="], "zmq_endpoint", ""),
        (["--hash-seed=--x"], "hash_seed", "--x"),
        (["--hash-seed", "-"], "hash_seed", "-"),
        (["--mode", "echo"], "mode", "echo"),
        (["--latency-calculator", ""], "latency_calculator", ""),
        # booleans
        (["--log-http"], "log_http", True),
        (["--log-http=true"], "log_http", True),
        (["--log-http=false"], "log_http", False),
        (["--log-http", "false"], "log_http", False),
        (["--log-http", "TRUE"], "log_http", True),
        (["--log-http=0"], "log_http", False),
        (["--log-http=T"], "log_http", True),
        (["--log_http=no"], "log_http", False),
        (["--no-logtostderr"], "logtostderr", False),
        (["--no-logtostderr=false"], "logtostderr", True),
        (["--no-logtostderr", "true"], "logtostderr", False),
        (["--log-http", "--no-log-http"], "log_http", False),
        (["--enable-sleep-mode"], "enable_sleep_mode", True),
        (["--enable-sleep-mode=false"], "enable_sleep_mode", False),
        (["--enable-kvcache", "false"], "enable_kvcache", False),
        (["--enable-sleep-mode", "--no-enable-sleep-mode"], "enable_sleep_mode", False),
        (["--enable-sleep-mode", "--disable-sleep-mode"], "enable_sleep_mode", False),
        (["--disable-sleep-mode=false"], "enable_sleep_mode", True),
        (["--no-disable-sleep-mode"], "enable_sleep_mode", True),
        (["--log-http", "--v", "3"], "v", 3),
        # numbers, negative ones included
        (["--seed", "-5"], "seed", -5),
        (["--seed=-9223372036854775808"], "seed", -(2**63)),
        (["--seed", "9223372036854775807"], "seed", 2**63 - 1),
        (["--seed", ""], "seed", None),
        (["--seed", "None"], "seed", None),
        (["--max-logprobs", "-1"], "max_logprobs", -1),
        (["--data-parallel-rank", "-1"], "data_parallel_rank", -1),
        (["--min-tool-call-number-param", "-.5"], "min_tool_call_number_param", -0.5),
        (["--min-tool-call-integer-param", "-7"], "min_tool_call_integer_param", -7),
        (["--max-model-len", "4k"], "max_model_len", 4000),
        (["--max-model-len", "4K"], "max_model_len", 4096),
        (["--max-model-len", "1.5k"], "max_model_len", 1500),
        (["--max-model-len", "2M"], "max_model_len", 2 * 1024**2),
        (["--max-model-len", "1m"], "max_model_len", 1_000_000),
        (["--max-model-len", "10_000"], "max_model_len", 10_000),
        (["--time-factor-under-load", "2"], "time_factor_under_load", 2.0),
        (["--time-factor-under-load", "1.5e1"], "time_factor_under_load", 15.0),
        (["--block-size", "32"], "block_size", 32),
        # durations: Go's text, bare numbers as milliseconds, or seconds where the option says so
        (["--time-to-first-token", "100ms"], "time_to_first_token", 0.1),
        (["--time-to-first-token", "100"], "time_to_first_token", 0.1),
        (["--time-to-first-token", "0.5"], "time_to_first_token", 0.0005),
        (["--time-to-first-token", "0"], "time_to_first_token", 0.0),
        (["--inter-token-latency", "250us"], "inter_token_latency", 0.00025),
        (["--render-timeout", "1m30s"], "render_timeout", 90.0),
        (["--shutdown-timeout", "40"], "shutdown_timeout", 40.0),
        (["--shutdown-timeout", "40ms"], "shutdown_timeout", 0.04),
        (["--keep-alive-timeout", "5"], "keep_alive_timeout", 5.0),
        # lists
        (["--served-model-name", "a", "b", "c"], "served_model_name", ("a", "b", "c")),
        (["--served-model-name=a"], "served_model_name", ("a",)),
        (["--served-model-name=a", "--served-model-name=b"], "served_model_name", ("a", "b")),
        (["--served-model-name", "a", "b", "--served_model_name", "c"], "served_model_name", ("a", "b", "c")),
        (["--served-model-name", "a", "b", "-v", "5"], "served_model_name", ("a", "b")),
        (["--served-model-name", "a", "b", "-v", "5"], "v", 5),
        (["--served-model-name", "a", "--"], "served_model_name", ("a",)),
        (["--served-model-name"], "served_model_name", ("m",)),
        (["--served-model-name", ""], "served_model_name", ("m",)),
        (["--served-model-name="], "served_model_name", ("m",)),
        (["--failure-types", "rate_limit", "server_error"], "failure_types", ("rate_limit", "server_error")),
        (["--failure-types"], "failure_types", ()),
        (["--listen", "tcp:1", "--listen", "unix:/x"], "listen", ("tcp:1", "unix:/x")),
        (["--api-key", "a", "b"], "api_key", ("a", "b")),
        (["--admin-listen", "tcp:1", "--admin-listen", "unix:/x"], "admin_listen", ("tcp:1", "unix:/x")),
        # a list in JSON
        (["--allowed-origins", '["http://a", "*"]'], "allowed_origins", ("http://a", "*")),
        (["--allowed_origins=[]"], "allowed_origins", ()),
        (["--allowed-methods", '["GET"]', "m"], "allowed_methods", ("GET",)),
        (["--allowed-origins", '["a"]', "--allowed-origins", '["b"]'], "allowed_origins", ("b",)),
        # LoRA modules
        (["--lora-modules", "a=/x", "b=/y"], "lora_modules", (LoraModule("a", "/x"), LoraModule("b", "/y"))),
        (
            ["--lora-modules", '{"name":"a"}', "b=/y=z"],
            "lora_modules",
            (LoraModule("a"), LoraModule("b", "/y=z")),
        ),
        (["--lora-modules=a=/x"], "lora_modules", (LoraModule("a", "/x"),)),
        (
            [
                "--lora-modules",
                ' {"name": "a", "path": "/x", "base_model_name": "m", "is_3d_lora_weight": true}',
            ],
            "lora_modules",
            (LoraModule("a", "/x", "m"),),
        ),
        (["--lora-modules", ""], "lora_modules", ()),
        # JSON, whole and key by key
        (["--fake-metrics", '{"running-requests": 10}'], "fake_metrics", {"running-requests": 10}),
        (["--fake-metrics", ""], "fake_metrics", None),
        (["--fake-metrics.running-requests", "10"], "fake_metrics", {"running-requests": 10}),
        (["--fake_metrics.kv-cache-usage=0.5"], "fake_metrics", {"kv-cache-usage": 0.5}),
        (
            ["--fake-metrics", '{"a": 1}', "--fake-metrics.b.c", "4k"],
            "fake_metrics",
            {"a": 1, "b": {"c": 4000}},
        ),
        (["--fake-metrics.a+", "1,2", "--fake-metrics.a+", "x"], "fake_metrics", {"a": [1, 2, "x"]}),
        (["--ec-transfer-config.ec_connector", "X"], "ec_transfer_config", {"ec_connector": "X"}),
        # short forms
        (["-v", "5"], "v", 5),
        (["-v=5"], "v", 5),
        (["-v5"], "v", 5),
        (["--v", "5"], "v", 5),
        (["--v=0"], "v", 0),
        (["-tp", "2"], "tensor_parallel_size", 2),
        (["-tp=2"], "tensor_parallel_size", 2),
        (["-dp", "2"], "data_parallel_size", 2),
        (["-dpn", "3"], "data_parallel_rank", 3),
        # klog, with underscores and with dashes
        (["--log_file", "/x"], "log_file", "/x"),
        (["--log-file", "/x"], "log_file", "/x"),
        (["--log_dir=/x"], "log_dir", "/x"),
        (["--log_file_max_size", "10"], "log_file_max_size", 10),
        (["--log-file-max-size", "10"], "log_file_max_size", 10),
        (["--logtostderr=false"], "logtostderr", False),
        (["--alsologtostderr"], "alsologtostderr", True),
        (["--one_output"], "one_output", True),
        (["--skip_headers"], "skip_headers", True),
        (["--skip-log-headers"], "skip_log_headers", True),
        (["--stderrthreshold", "ERROR"], "stderrthreshold", "ERROR"),
        (["--stderrthreshold=1"], "stderrthreshold", "1"),
        (["--add_dir_header"], "add_dir_header", True),
        (["--log_backtrace_at", "a.go:3"], "log_backtrace_at", "a.go:3"),
        (["--vmodule", "a=1,b=2"], "vmodule", "a=1,b=2"),
    ],
)
def test_reads(argv: list[str], field: str, value: object) -> None:
    assert getattr(given(*argv), field) == value


@pytest.mark.parametrize(
    ("argv", "model"),
    [
        (["org/m"], "org/m"),
        (["org/m", "--port", "1"], "org/m"),
        (["--port", "1", "org/m"], "org/m"),
        (["--log-http", "org/m"], "org/m"),
        (["--log-http", "1"], "1"),
        (["--", "org/m"], "org/m"),
        (["serve", "org/m"], "org/m"),
        (["serve", "--model", "org/m"], "org/m"),
        (["--", "serve"], "serve"),
        (["--", "--odd"], "--odd"),
        (["org/m", "--model", "org/m"], "org/m"),
        (["--model", "a", "--model", "b"], "b"),
        (["--hf-token", "--model", "a"], "a"),
    ],
)
def test_the_model_may_stand_alone(argv: list[str], model: str) -> None:
    assert parse(argv, {}).model == model


def test_the_docker_example_of_the_readme() -> None:
    config = parse(
        [
            "--port",
            "8000",
            "--model",
            "Qwen/Qwen2.5-1.5B-Instruct",
            "--lora-modules",
            '{"name":"tweet-summary-0"}',
            '{"name":"tweet-summary-1"}',
        ],
        {},
    )
    assert config.port == 8000
    assert config.model == "Qwen/Qwen2.5-1.5B-Instruct"
    assert [module.name for module in config.lora_modules] == ["tweet-summary-0", "tweet-summary-1"]


def test_the_fake_metrics_example_of_the_readme() -> None:
    loras = [{"running": "lora4,lora2", "waiting": "lora3", "timestamp": 1257894567}]
    text = (
        '{"running-requests":10,"waiting-requests":30,"kv-cache-usage":0.4,'
        '"loras":[{"running":"lora4,lora2","waiting":"lora3","timestamp":1257894567}]}'
    )
    assert given("--fake-metrics", text).fake_metrics == {
        "running-requests": 10,
        "waiting-requests": 30,
        "kv-cache-usage": 0.4,
        "loras": loras,
    }


def test_what_was_given_is_known() -> None:
    config = parse(["m", "--port", "8000", "--no-omni", "--dtype", "auto"], {})
    assert config.given == {"model", "port", "omni"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--prot", "1"], "flag --prot is not known; did you mean --port?"),
        (["--max-num-seq=1"], "flag --max-num-seq is not known; did you mean --max-num-seqs?"),
        (
            ["--served_model_names", "x"],
            "flag --served_model_names is not known; did you mean --served-model-name?",
        ),
        (["-port", "1"], "flag -port is not known; did you mean --port?"),
        (["--no-port"], "flag --no-port is not known; did you mean --port?"),
        (["--xyzzyxyzzy"], "flag --xyzzyxyzzy is not known"),
        (["---", "1"], "flag --- is not known"),
        (["-t", "2"], "flag -t is not known"),
        (["-5"], "unexpected argument '-5'; --model gives another model, 'm'"),
        (["--a\nb"], "flag '--a\\nb' is not known"),
        (["--port.x", "1"], "flag --port.x is not known; did you mean --port?"),
        (["--lora", "x"], "flag --lora is not known any more; its name is --lora-modules now"),
        (
            ["--max-running-requests=3"],
            "flag --max-running-requests is not known any more; its name is --max-num-seqs now",
        ),
        (
            ["--max_running_requests=3"],
            "flag --max_running_requests is not known any more; its name is --max-num-seqs now",
        ),
        (["--port"], "--port: its value is missing"),
        (["--port", "--omni"], "--port: its value is missing"),
        (["-v"], "-v: its value is missing"),
        (["--seed", "-v"], "--seed: its value is missing"),
        (["--dtype"], "--dtype: its value is missing"),
        (["--port", ""], "--port: '' is not an integer from 1 to 65535"),
        (["--port", "http"], "--port: 'http' is not an integer from 1 to 65535"),
        (["--port", "0"], "--port: '0' is not an integer from 1 to 65535"),
        (["--port=70000"], "--port: '70000' is not an integer from 1 to 65535"),
        (["--port", "80.5"], "--port: '80.5' is not an integer from 1 to 65535"),
        (["--port", " 80"], "--port: ' 80' is not an integer from 1 to 65535"),
        (["--port", "abc", "--port", "80"], "--port: 'abc' is not an integer from 1 to 65535"),
        (["--max_num_seqs", "0"], "--max_num_seqs: '0' is not an integer of at least 1"),
        (
            ["--max-waiting-queue-length", "-1"],
            "--max-waiting-queue-length: '-1' is not an integer of at least 0",
        ),
        (["--seed", "9223372036854775808"], "--seed: '9223372036854775808' is not an integer"),
        (["--seed", "12x"], "--seed: '12x' is not an integer"),
        (["--max-logprobs", "-2"], "--max-logprobs: '-2' is not an integer of at least -1"),
        (["--data-parallel-rank", "-2"], "--data-parallel-rank: '-2' is not an integer from -1 to 7"),
        (["--data-parallel-rank", "8"], "--data-parallel-rank: '8' is not an integer from -1 to 7"),
        (["-dp", "9"], "-dp: '9' is not an integer from 1 to 8"),
        (
            ["--zmq-max-connect-attempts", "11"],
            "--zmq-max-connect-attempts: '11' is not an integer from 0 to 10",
        ),
        (
            ["--max-request-body-size-mb", "513"],
            "--max-request-body-size-mb: '513' is not an integer from 1 to 512",
        ),
        (
            ["--max-model-len", "1.5K"],
            "--max-model-len: '1.5K' is not an integer of at least 1 (give a number, "
            "there is no model to take it from)",
        ),
        (
            ["--max-model-len", "auto"],
            "--max-model-len: 'auto' is not an integer of at least 1 (give a number, "
            "there is no model to take it from)",
        ),
        (
            ["--max-model-len", "-1"],
            "--max-model-len: '-1' is not an integer of at least 1 (give a number, "
            "there is no model to take it from)",
        ),
        (["--mode", "Echo"], "--mode: 'Echo' is not one of random, echo"),
        (["--block-size", "24"], "--block-size: '24' is not one of 8, 16, 32, 64, 128"),
        (
            ["--latency-calculator", "x"],
            "--latency-calculator: 'x' is not one of (empty), constant, per-token",
        ),
        (
            ["--failure-types", "rate_limit", "x"],
            "--failure-types: 'x' is not one of rate_limit, invalid_api_key, "
            "context_length, server_error, invalid_request, model_not_found",
        ),
        (
            ["--allowed-origins", "http://a"],
            '--allowed-origins: \'http://a\' is not a JSON list of texts such as ["a", "b"]',
        ),
        (
            ["--allowed-headers", "[1]"],
            '--allowed-headers: \'[1]\' is not a JSON list of texts such as ["a", "b"]',
        ),
        (
            ["--allowed-methods", '"*"'],
            '--allowed-methods: \'"*"\' is not a JSON list of texts such as ["a", "b"]',
        ),
        (["--allowed-methods"], "--allowed-methods: its value is missing"),
        (["--log-http=maybe"], "--log-http: 'maybe' is not true or false"),
        (["--log-http="], "--log-http: '' is not true or false"),
        (["--log-http", "maybe"], "unexpected argument 'maybe'; --model gives another model, 'm'"),
        (
            ["--time-to-first-token", "5 parsecs"],
            "--time-to-first-token: '5 parsecs' is not a duration such as "
            "250ms or 1m30s (a bare number is milliseconds)",
        ),
        (
            ["--time-to-first-token", "-10ms"],
            "--time-to-first-token: '-10ms' is not a duration such as "
            "250ms or 1m30s (a bare number is milliseconds)",
        ),
        (
            ["--fake-metrics-refresh-interval", "0"],
            "--fake-metrics-refresh-interval: '0' is not a duration such as "
            "250ms or 1m30s of at least 1us (a bare number is milliseconds)",
        ),
        (
            ["--keep-alive-timeout", "90000"],
            "--keep-alive-timeout: '90000' is not a duration such as "
            "250ms or 1m30s from 0s to 24h0m0s (a bare number is seconds)",
        ),
        (
            ["--time-factor-under-load", "0.5"],
            "--time-factor-under-load: '0.5' is not a number from 1 to 1000000",
        ),
        (
            ["--time-factor-under-load", "nan"],
            "--time-factor-under-load: 'nan' is not a number from 1 to 1000000",
        ),
        (
            ["--time-factor-under-load", "1e999"],
            "--time-factor-under-load: '1e999' is not a number from 1 to 1000000",
        ),
        (
            ["--global-cache-hit-threshold", "1.1"],
            "--global-cache-hit-threshold: '1.1' is not a number from 0 to 1",
        ),
        (["--fake-metrics", "[]"], f"--fake-metrics: '[]' is not {DOCUMENT}"),
        (["--fake-metrics", "{"], f"--fake-metrics: '{{' is not {DOCUMENT}"),
        (["--fake-metrics", "\ud800"], f"--fake-metrics: '\\ud800' is not {DOCUMENT}"),
        (
            ["--fake-metrics", '{"a": 1}', "--fake-metrics.a.b", "1"],
            "--fake-metrics.a.b: 'a' is not an object",
        ),
        (["--fake-metrics", '{"a": 1}', "--fake-metrics.a+", "1"], "--fake-metrics.a+: 'a' is not a list"),
        (
            ["--lora-modules", "x"],
            '--lora-modules: \'x\' is not a LoRA module such as {"name": "a", "path": "/a"} or a=/a',
        ),
        (
            ["--lora-modules", '{"path": "x"}'],
            '--lora-modules: \'{"path": "x"}\' is not a LoRA module such as '
            '{"name": "a", "path": "/a"} or a=/a',
        ),
        (
            ["--lora-modules", "=x"],
            '--lora-modules: \'=x\' is not a LoRA module such as {"name": "a", "path": "/a"} or a=/a',
        ),
        (["--hash-seed", "\udcff"], "--hash-seed: '\\udcff' is not UTF-8 text"),
        (["other"], "unexpected argument 'other'; --model gives another model, 'm'"),
        (["m", "m"], "unexpected argument 'm'; only the model may be given without a flag"),
        (["m", "serve"], "unexpected argument 'serve'; only the model may be given without a flag"),
        (["--model="], "--model: a model is required (or SIM_MODEL, or model in the --config file)"),
        (["--headless=true", "--no-headless"], "flag --no-headless is not known; did you mean --headless?"),
    ],
)
def test_refuses_in_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        given(*argv)
    assert str(caught.value) == message


def test_a_model_is_required() -> None:
    with pytest.raises(ConfigError, match=r"^--model: a model is required"):
        parse([], {})


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(ConfigError) as caught:
        given("--fake-metrics", "x" * 10_000)
    assert len(str(caught.value)) < 200


def test_a_secret_is_not_in_the_message() -> None:
    with pytest.raises(ConfigError) as caught:
        given("--api-key", "s3cret\udcff")
    assert str(caught.value) == "--api-key: the value is not UTF-8 text"


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["--port", "1", "-h", "--nonsense"], ["--help=all"]])
def test_help_is_handed_to_the_caller(argv: list[str]) -> None:
    with pytest.raises(HelpRequested) as caught:
        parse(argv, {})
    assert "--time-to-first-token TIME" in str(caught.value)


def test_version_is_handed_to_the_caller() -> None:
    with pytest.raises(VersionRequested) as caught:
        parse(["--version"], {})
    assert str(caught.value) == f"llmdsim {__version__}"
