"""The YAML file of `--config`: the same options as the command line, as keys.

Scalars are read as the text that was written, by the same rules as flags, so that `hash-seed: 007` stays what
it is; only JSON values go through YAML's own types.
"""

from collections.abc import Iterator

import yaml

from llmdsim.config.given import Given
from llmdsim.config.option import ConfigError, Option
from llmdsim.config.spellings import find, unknown
from llmdsim.config.values import read

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"


def read_yaml_file(path: str) -> Given:
    """Read options from the file. Raises ConfigError, with the line where there is one."""
    given = Given()
    shown = path if path.isprintable() else repr(path)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None or root.tag == _NULL:
            return given
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError(f"{shown}: not a mapping of options to values")
        _refuse_duplicates(shown, root)
        loader.flatten_mapping(root)  # merges `<<: *defaults`
        for key, value in root.value:
            _read_entry(loader, shown, key, value, given)
    except OSError as error:
        raise ConfigError(f"--config: cannot read {path!r}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{shown}{_problem(error)}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--config: cannot read {path!r}: {error}") from None
    return given


def yaml_object(text: str, shown: str) -> object:
    """The data of a YAML mapping. Raises ConfigError for anything else, with `shown` and the line."""
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError(f"{shown}: not a mapping")
        _refuse_duplicates(shown, root)
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        raise ConfigError(f"{shown}{_problem(error)}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{shown}: {error}") from None


def _read_entry(loader: yaml.SafeLoader, path: str, key: yaml.Node, value: yaml.Node, given: Given) -> None:
    if not isinstance(key, yaml.ScalarNode):
        raise ConfigError(f"{_at(path, key)}: a key is not text")
    label = f"{_at(path, key)}: {key.value}"
    spelling = find(f"--{key.value}")
    if spelling is None:
        raise unknown(key.value, f"{_at(path, key)}: key {key.value!r}")
    option = spelling.target
    if not isinstance(option, Option):
        given.ignored.append(option.name)
        return
    if option.name == "config":
        raise ConfigError(f"{label}: a file cannot name another")
    if value.tag == _NULL:  # written down but not set, as templates do
        return
    if option.many:
        given.values[option.field] = tuple(read(option, _raw(loader, item), label) for item in _items(value))
    else:
        one = read(option, _raw(loader, value), label)
        given.values[option.field] = one != spelling.negated if option.kind == "bool" else one


def _items(value: yaml.Node) -> list[yaml.Node]:
    items = value.value if isinstance(value, yaml.SequenceNode) else [value]
    return [item for item in items if item.tag != _NULL and item.value != ""]


def _raw(loader: yaml.SafeLoader, node: yaml.Node) -> object:
    """The node's text; its data where it is a list or a mapping."""
    if isinstance(node, yaml.ScalarNode):
        return node.value
    return loader.construct_object(node, deep=True)


def _refuse_duplicates(path: str, root: yaml.Node) -> None:
    for mapping in _mappings(root):
        seen = set()
        for key, _ in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            name = key.value.replace("_", "-") if mapping is root else key.value
            if name in seen and name != "<<":
                raise ConfigError(f"{_at(path, key)}: key {key.value!r} is there twice")
            seen.add(name)


def _mappings(root: yaml.Node) -> Iterator[yaml.MappingNode]:
    """All mappings below `root`, once each; aliases may make the tree a graph."""
    met = {id(root)}
    todo = [root]
    while todo:
        node = todo.pop()
        below: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            yield node
            below = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            below = node.value
        for child in below:
            if id(child) not in met:
                met.add(id(child))
                todo.append(child)


def _at(path: str, node: yaml.Node) -> str:
    return f"{path}:{node.start_mark.line + 1}"


def _problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f":{mark.line + 1}" if mark else ""
    text = getattr(error, "problem", None) or str(error)
    return f"{line}: {' '.join(text.split())}"
