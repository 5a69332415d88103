"""The table of attached characters against the interpreter's own Unicode data."""

import re
import unicodedata

from llmdsim.tokenization.marks import ATTACHED

_ATTACHED = re.compile(f"[{ATTACHED}]")


def test_every_mark_of_the_basic_plane_is_in_the_table() -> None:
    # Unicode 3.2 is in every interpreter; later versions know more marks than the table may.
    marks = [
        chr(code)
        for code in range(0x10000)
        if unicodedata.ucd_3_2_0.category(chr(code))[0] == "M" and unicodedata.category(chr(code))[0] == "M"
    ]
    assert len(marks) > 500
    assert [mark for mark in marks if not _ATTACHED.match(mark)] == []


def test_the_table_holds_no_character_that_stands_alone() -> None:
    wrong = [
        hex(code)
        for code in range(0x110000)
        if _ATTACHED.match(chr(code))
        and unicodedata.ucd_3_2_0.category(chr(code))[0] in "LNPZ"
        and unicodedata.category(chr(code))[0] in "LNPZ"
    ]
    assert wrong == []
    assert not _ATTACHED.search("".join(map(chr, range(128))))
