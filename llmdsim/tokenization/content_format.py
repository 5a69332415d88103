"""Whether a chat template wants the content of messages as a text or as a list of parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from jinja2 import nodes

ContentFormat: TypeAlias = Literal["string", "openai"]


def content_format(tree: nodes.Template) -> ContentFormat:
    """ "openai", a list, where the template loops over the content of a message, by vLLM 0.33's rules.

    It does where a loop goes over `message.content`, for whatever name a message has; over a parameter of a
    macro that is given such; or, outside of macros, over a variable called `content`.
    """
    conversations = _names_for(tree, "messages")
    messages = {
        loop.target.name
        for loop in tree.find_all(nodes.For)
        if isinstance(loop.target, nodes.Name) and any(_reads(loop.iter, name) for name in conversations)
    }
    in_macros: dict[int, set[str]] = {}
    for macro in tree.find_all(nodes.Macro):
        parameters = _given_content(tree, macro, messages)
        for loop in macro.find_all(nodes.For):
            in_macros.setdefault(id(loop), set()).update(parameters)
    for loop in tree.find_all(nodes.For):
        if any(_reads(loop.iter, name, "content") for name in messages):
            return "openai"
        if isinstance(loop.iter, nodes.Name) and loop.iter.name in in_macros.get(id(loop), {"content"}):
            return "openai"
    return "string"


def _given_content(tree: nodes.Template, macro: nodes.Macro, messages: set[str]) -> set[str]:
    """The parameters of a macro that some call of it gives the content of a message."""
    found = set()
    for call in tree.find_all(nodes.Call):
        if not isinstance(call.node, nodes.Name) or call.node.name != macro.name:
            continue
        given = [(parameter.name, value) for parameter, value in zip(macro.args, call.args, strict=False)]
        given += [
            (keyword.key, keyword.value) for keyword in call.kwargs if isinstance(keyword, nodes.Keyword)
        ]
        found |= {
            name for name, value in given if any(_reads(value, message, "content") for message in messages)
        }
    return found


def _names_for(tree: nodes.Template, variable: str) -> set[str]:
    """All names that a variable, or a part of it, goes by: `ns.rest` for a member of a namespace."""
    names = {variable}
    todo = [variable]
    while todo:
        name = todo.pop()
        for assignment in tree.find_all(nodes.Assign):
            new = set(_assigned(assignment, name)) - names
            names |= new
            todo += new
    return names


def _assigned(assignment: nodes.Assign, name: str) -> Iterator[str]:
    """What `assignment` makes a name for `name`."""
    target, value = assignment.target, assignment.node
    if _reads(value, name):
        if isinstance(target, nodes.Name):
            yield target.name
        elif isinstance(target, nodes.NSRef):
            yield f"{target.name}.{target.attr}"
    elif (
        isinstance(target, nodes.Name)
        and isinstance(value, nodes.Call)
        and isinstance(value.node, nodes.Name)
        and value.node.name == "namespace"
    ):
        for keyword in value.kwargs:
            if isinstance(keyword, nodes.Keyword) and _reads(keyword.value, name):
                yield f"{target.name}.{keyword.key}"


def _reads(node: nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Whether an expression is the variable, or its member `key`, or a slice or a filtered form of that."""
    while isinstance(node, nodes.Filter | nodes.Test) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    if key is None:
        return _is_variable(node, name)
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == key and _is_variable(node.node, name)
    return isinstance(node, nodes.Getattr) and node.attr == key and _is_variable(node.node, name)


def _is_variable(node: nodes.Node | None, name: str) -> bool:
    if isinstance(node, nodes.Name):
        return node.ctx == "load" and node.name == name
    if isinstance(node, nodes.Getattr):
        base, dot, attribute = name.rpartition(".")
        return bool(dot) and node.attr == attribute and _is_variable(node.node, base)
    return False
