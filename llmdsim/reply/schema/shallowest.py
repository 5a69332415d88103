"""How little a value of a schema must nest: the way out of schemas that contain themselves."""

from __future__ import annotations

from collections.abc import Sequence

from llmdsim.reply.effort import Effort
from llmdsim.reply.schema.document import Document
from llmdsim.reply.schema.keywords import Part, count, item_schemas, listing, mapping, strings, types

MAX_HEIGHT = 8
_MAX_HOPS = 40
"""Schemas that apply to one value by way of each other."""


class Heights:
    """Heights of one document's schemas: 0 needs neither members nor items, 1 one level of them."""

    def __init__(self, document: Document, effort: Effort) -> None:
        self._document = document
        self._effort = effort
        self._known: dict[tuple[int, int], bool] = {}
        self._hops = 0

    def of(self, schema: object) -> int:
        """At most `MAX_HEIGHT` + 1, which stands for anything above."""
        return next(
            (height for height in range(MAX_HEIGHT + 1) if self._fits(schema, height)), MAX_HEIGHT + 1
        )

    def _fits(self, schema: object, height: int) -> bool:
        """Whether some value of the schema nests no deeper than `height`. What makes no sense always does."""
        if not isinstance(schema, dict):
            return schema is not False
        key = (id(schema), height)
        known = self._known.get(key)
        if known is None:
            self._effort.spend(4)
            # Should it depend on itself, then this way leads nowhere.
            self._known[key] = False
            self._hops += 1
            known = self._hops < _MAX_HOPS and self._part_fits(schema, height)
            self._hops -= 1
            self._known[key] = known
        return known

    def _part_fits(self, part: Part, height: int) -> bool:
        reference = part.get("$ref")
        if isinstance(reference, str):
            target = self._document.follow(reference, self._effort)
            if not self._fits(target, height):
                return False
        if not all(self._fits(each, height) for each in listing(part, "allOf")):
            return False
        for keyword in ("anyOf", "oneOf"):
            branches = listing(part, keyword)
            if branches and not any(self._fits(branch, height) for branch in branches):
                return False
        if "enum" in part or "const" in part:
            return True
        allowed = types((part,))
        if allowed is None:
            return self._object_fits(part, height) and self._array_fits(part, height)
        return any(
            self._object_fits(part, height)
            if kind == "object"
            else self._array_fits(part, height)
            if kind == "array"
            else True
            for kind in allowed
        )

    def _object_fits(self, part: Part, height: int) -> bool:
        members = mapping(part, "properties")
        return self._all_fit([members.get(name, True) for name in strings(part, "required")], height)

    def _array_fits(self, part: Part, height: int) -> bool:
        least = min(count(part, "minItems") or 0, len(listing(part, "prefixItems")) + 1)
        items = [each for index in range(least) for each in item_schemas((part,), index)]
        return self._all_fit(items if items or not least else [True], height)

    def _all_fit(self, schemas: Sequence[object], height: int) -> bool:
        return not schemas or (height > 0 and all(self._fits(each, height - 1) for each in schemas))
