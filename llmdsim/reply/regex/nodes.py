"""The tree of a regular expression; every node knows how short and how long its text may be."""

from __future__ import annotations

from collections.abc import Sequence

from llmdsim.reply.regex.charset import CharSet

ENDLESS = 1 << 40
"""A length without bound; sums and products are cut to it."""


class Node:
    """`shortest` and `longest` are lengths in characters of the text it stands for."""

    __slots__ = ("longest", "shortest")

    def __init__(self, shortest: int = 0, longest: int = 0) -> None:
        self.shortest = min(shortest, ENDLESS)
        self.longest = min(longest, ENDLESS)


class Literal(Node):
    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__(len(text), len(text))
        self.text = text


class OneOf(Node):
    """One character of a set."""

    __slots__ = ("charset",)

    def __init__(self, charset: CharSet) -> None:
        super().__init__(1, 1)
        self.charset = charset


class Concat(Node):
    """`rest_shortest[i]` and `rest_longest[i]` are those of all that stands behind item i."""

    __slots__ = ("items", "rest_longest", "rest_shortest")

    def __init__(self, items: Sequence[Node]) -> None:
        self.items = items
        self.rest_shortest = [0] * len(items)
        self.rest_longest = [0] * len(items)
        shortest = longest = 0
        for index in range(len(items) - 1, -1, -1):
            self.rest_shortest[index] = shortest
            self.rest_longest[index] = longest
            shortest = min(shortest + items[index].shortest, ENDLESS)
            longest = min(longest + items[index].longest, ENDLESS)
        super().__init__(shortest, longest)


class Alternate(Node):
    __slots__ = ("branches",)

    def __init__(self, branches: Sequence[Node]) -> None:
        super().__init__(min(node.shortest for node in branches), max(node.longest for node in branches))
        self.branches = branches


class Repeat(Node):
    """`most` is None where there is no upper bound."""

    __slots__ = ("item", "least", "most")

    def __init__(self, item: Node, least: int, most: int | None) -> None:
        longest = ENDLESS if most is None and item.longest else item.longest * (most or 0)
        super().__init__(item.shortest * least, longest)
        self.item = item
        self.least = least
        self.most = most


class Group(Node):
    """A group whose text may be referred to by `number`."""

    __slots__ = ("item", "number")

    def __init__(self, item: Node, number: int) -> None:
        super().__init__(item.shortest, item.longest)
        self.item = item
        self.number = number


class Backreference(Node):
    __slots__ = ("number",)

    def __init__(self, number: int, group: Node | None) -> None:
        super().__init__(group.shortest if group else 0, group.longest if group else 0)
        self.number = number


class Assertion(Node):
    """A condition on the place it stands at.

    `kind` is "start" or "end" (of the text), "line start", "line end", "boundary" or "no boundary".
    """

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind


class Look(Node):
    """A look ahead or behind at what must, or with `negative` must not, stand there."""

    __slots__ = ("behind", "item", "negative")

    def __init__(self, item: Node, behind: bool, negative: bool) -> None:
        super().__init__()
        self.item = item
        self.behind = behind
        self.negative = negative


class Tree:
    """A whole expression.

    `groups` is how many there are, None if nothing refers back to them. `opens` and `closes`: whether it
    holds conditions that text in front of it, or behind it, could break. `looks`: whether it looks around.
    """

    __slots__ = ("closes", "groups", "looks", "opens", "root")

    def __init__(self, root: Node, groups: int | None, kinds: set[str], looks: bool) -> None:
        self.root = root
        self.groups = groups
        boundary = bool(kinds & {"boundary", "no boundary"})
        self.opens = boundary or bool(kinds & {"start", "line start"})
        self.closes = boundary or bool(kinds & {"end", "line end"})
        self.looks = looks
