"""Replies that were ended before they were complete."""

from __future__ import annotations

from llmdsim.reply.reply import TEXT_ONLY, Delta, Reply, ShortSentenceReply


class CutReply(Reply):
    """The first `total` steps of `whole`, or nothing of a reply that was not written yet.

    Text that was held back stays so: a stream has no step left to reveal it in.
    """

    __slots__ = ("_whole", "parts")

    def __init__(self, whole: Reply | None, total: int) -> None:
        self._whole = whole or ShortSentenceReply([], 0, 0, "abort")
        self.total = total
        self.finish_reason = "abort"
        self.stop_reason = None
        self.parts = self._whole.parts
        if self.parts is not TEXT_ONLY:
            begun = [delta.part for step in self.deltas(0, total) for delta in step]
            self.parts = self.parts[: max(begun, default=-1) + 1]

    def texts(self, start: int, stop: int) -> list[str]:
        return self._whole.texts(start, min(stop, self.total))

    def pieces(self, start: int, stop: int) -> list[bytes]:
        return self._whole.pieces(start, min(stop, self.total))

    def token_texts(self, start: int, stop: int) -> list[str]:
        return self._whole.token_texts(start, min(stop, self.total))

    def ids(self, start: int, stop: int) -> list[int]:
        return self._whole.ids(start, min(stop, self.total))

    def deltas(self, start: int, stop: int) -> list[list[Delta]]:
        return self._whole.deltas(start, min(stop, self.total))

    def reasoning_tokens(self, steps: int) -> int:
        return self._whole.reasoning_tokens(min(steps, self.total))

    def part_texts(self) -> list[str]:
        texts: list[list[str]] = [[] for _ in self.parts]
        for step in self.deltas(0, self.total):
            for delta in step:
                texts[delta.part].append(delta.text)
        return ["".join(pieces) for pieces in texts]
