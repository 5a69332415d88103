"""A schema document and where the references in it lead."""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from urllib.parse import unquote

from llmdsim.reply.effort import Effort

MAX_INDEXED = 2000
"""Objects and arrays of a document that are searched for anchors and ids."""

NOWHERE = object()
"""What a reference leads to that leads nowhere. Nothing outside of the document is ever fetched."""


class Document:
    """`root` is the whole schema, as decoded JSON."""

    def __init__(self, root: object) -> None:
        self.root = root

    def follow(self, reference: str, effort: Effort) -> object:
        """What a `$ref` leads to, or `NOWHERE`: a JSON pointer, an anchor, an `$id`, or `$id#pointer`."""
        base, _, fragment = reference.partition("#")
        start = self.root if not base else self._names.get(base, NOWHERE)
        if fragment and not fragment.startswith("/"):
            return self._names.get(f"#{fragment}", NOWHERE)
        return _pointed(start, fragment, effort) if fragment else start

    @cached_property
    def _names(self) -> dict[str, object]:
        """Schemas by their `$id`, and by their anchors with a # in front."""
        names: dict[str, object] = {}
        pending: list[dict[str, object] | list[object]] = []
        if isinstance(self.root, dict):
            pending.append(self.root)
        for node in pending:
            if isinstance(node, dict):
                for keyword, mark in (("$id", ""), ("id", ""), ("$anchor", "#"), ("$dynamicAnchor", "#")):
                    name = node.get(keyword)
                    if isinstance(name, str):
                        names.setdefault(f"{mark}{name.removesuffix('#')}", node)
            children = node.values() if isinstance(node, dict) else node
            room = MAX_INDEXED - len(pending)
            pending += [child for child in islice(children, room) if isinstance(child, dict | list)]
        return names


def _pointed(node: object, pointer: str, effort: Effort) -> object:
    for step in pointer.split("/")[1:]:
        effort.spend(1)
        key = (unquote(step) if "%" in step else step).replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isascii() and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return NOWHERE
    return node
