"""Command line over environment over file over default, and what the environment may say."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.config import OPTIONS, ConfigError, HelpRequested, VersionRequested, parse

FILE = "model: from-file\nhash-seed: from-file\nserved-model-name: [from-file]\nport: 1\n"


@pytest.mark.parametrize(
    ("argv", "environ", "model"),
    [
        (["--model", "from-flag"], {"SIM_MODEL": "from-env"}, "from-flag"),
        (["from-argument"], {"SIM_MODEL": "from-env"}, "from-argument"),
        ([], {"SIM_MODEL": "from-env"}, "from-env"),
        ([], {"SIM_MODEL": ""}, "from-file"),
        ([], {}, "from-file"),
    ],
)
def test_precedence(tmp_path: Path, argv: list[str], environ: dict[str, str], model: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(FILE)
    config = parse([*argv, "--config", str(path)], environ)
    assert config.model == model
    assert config.port == 1
    assert config.max_num_seqs == 5


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["--hash-seed", ""], "hash_seed", ""),
        (["--hash-seed="], "hash_seed", ""),
        (["--served-model-name"], "served_model_name", ("from-file",)),  # its default is the model
        (["--api-key"], "api_key", ()),
        (["--no-vllm-server-dev-mode"], "vllm_server_dev_mode", False),
    ],
)
def test_a_flag_given_empty_is_still_given(
    tmp_path: Path, argv: list[str], field: str, value: object
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(FILE + "api-key: from-file\n")
    environ = {"PYTHONHASHSEED": "from-env", "VLLM_API_KEY": "from-env", "VLLM_SERVER_DEV_MODE": "1"}
    assert getattr(parse([*argv, f"--config={path}"], environ), field) == value


def test_an_empty_model_flag_beats_the_environment() -> None:
    with pytest.raises(ConfigError, match="a model is required"):
        parse(["--model", ""], {"SIM_MODEL": "m"})


def test_a_list_on_the_command_line_replaces_the_one_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(FILE)
    config = parse(["--config", str(path), "--served-model-name", "a", "--served-model-name", "b"], {})
    assert config.served_model_name == ("a", "b")


@pytest.mark.parametrize(
    ("environ", "field", "value"),
    [
        ({"PYTHONHASHSEED": "0"}, "hash_seed", "0"),
        ({"PYTHONHASHSEED": "random"}, "hash_seed", "random"),
        ({"POD_NAME": "p"}, "pod_name", "p"),
        ({"POD_NAMESPACE": "n"}, "pod_namespace", "n"),
        ({"POD_IP": "10.0.0.1"}, "pod_ip", "10.0.0.1"),
        ({"VLLM_SERVER_DEV_MODE": "1"}, "vllm_server_dev_mode", True),
        ({"VLLM_SERVER_DEV_MODE": "true"}, "vllm_server_dev_mode", False),
        ({"VLLM_SERVER_DEV_MODE": "0"}, "vllm_server_dev_mode", False),
        ({"VLLM_SERVER_DEV_MODE": " 1"}, "vllm_server_dev_mode", False),
        ({"VLLM_API_KEY": "k y"}, "api_key", ("k y",)),
        ({"PORT": "1"}, "port", 8000),
    ],
)
def test_environment(environ: dict[str, str], field: str, value: object) -> None:
    assert getattr(parse(["m"], environ), field) == value


def test_pod_values_may_be_flags() -> None:
    config = parse(
        ["m", "--pod-name", "p", "--pod_namespace=n", "--pod-ip", "1.2.3.4"], {"POD_NAME": "other"}
    )
    assert (config.pod_name, config.pod_namespace, config.pod_ip) == ("p", "n", "1.2.3.4")


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^POD_NAME: '\\udcff' is not UTF-8 text$"):
        parse(["m"], {"POD_NAME": "\udcff"})


def test_a_wrong_value_in_the_file_is_an_error_even_when_a_flag_beats_it(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("port: x\n")
    with pytest.raises(ConfigError, match=r"c.yaml:1: port: 'x' is not an integer from 1 to 65535$"):
        parse(["m", "--port", "1", "--config", str(path)], {})


def test_the_parser_reads_nothing_but_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIM_MODEL", "m")
    with pytest.raises(ConfigError, match="a model is required"):
        parse([], {})


FLAGS = [f"--{name}" for name in OPTIONS if name != "config"]
WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [*FLAGS, "-v", "-tp", "-O", "-cc.mode", "--dtype", "--no-omni", "--fake-metrics.a.b", "--", "-"]
    ),
    st.sampled_from(
        ["true", "1", "-1", "4k", "100ms", "{}", '{"name": "a"}', "a=b", "[[", "\ud800", "1e99", ""]
    ),
    st.builds("{}={}".format, st.sampled_from(FLAGS), st.text(max_size=12)),
)


@given(st.lists(WORDS, max_size=8))
def test_any_arguments_parse_or_are_a_config_error(argv: list[str]) -> None:
    message = ""
    try:
        assert parse(argv, {}).model
    except ConfigError as error:
        message = str(error)
    except (HelpRequested, VersionRequested):
        pass
    assert message.isprintable(), "one line, fit for a terminal"
