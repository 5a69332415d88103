"""The built-in tokenizer: how text splits, what ids its pieces have, what it remembers."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.tokenization.builtin import _ASCII_PIECES, _PIECES, BuiltinTokenizer
from llmdsim.tokenization.fnv import fnv1a32

# All of it: lone surrogates, unassigned and control characters too.
ANY_TEXT = st.text(st.characters())
ASCII_TEXT = st.text(st.sampled_from("aZ09_ \t\n\f\r\v\x00\x1f\x7f`|.,#(\"'-"))
# Few characters, so that the ones with a meaning to each other meet.
MIXED_TEXT = st.text(st.sampled_from("aé_1 \n.\u0301中かก็한न्\u200d\ufe0f\u20e3👍🏽👩🇩🇪\ud83d\ude00\u3000"))


# Texts and their tokens as llm-d-inference-sim gives them: the number of tokens and the first one's id.
@pytest.mark.parametrize(
    ("text", "tokens", "first_id"),
    [
        ("", 0, None),
        ("a", 1, 3826002220),
        ("Hello, world!", 4, 4116459851),
        ("the the ", 2, 2938279028),
        ("don't stop", 4, 3983067150),
        ("a  b   c ", 3, 1319394188),
        ("a\tb\nc\r\n\x0cd", 4, 606389567),
        ("a_b", 1, 463759473),
        ("snake_case_name", 1, 3806376142),
        ("_abc", 2, 3658226030),
        ("__x_ _y", 5, 3658226030),
        ("_ _", 2, 2399917514),
        ("x=1;y=2", 7, 4245442695),
        ("2+2=4", 5, 923577301),
        ("A-B-C", 5, 3289118412),
        ("(a)(b)", 6, 755801111),
        ("e.g. 3.14", 7, 3758891744),
        ("100%", 2, 1731450012),
        ("!!!", 3, 604802540),
        ("C:\\dir\\f", 6, 3322673650),
        ('[{"k": "v"}]', 11, 3725336506),
        ("http://x/a.jpg?q=1&r=2", 17, 3378792613),
        ("### user: hi there\n", 7, 638357778),
    ],
)
def test_ascii_counts_and_ids_are_the_peers(text: str, tokens: int, first_id: int | None) -> None:
    tokenizer = BuiltinTokenizer()
    assert tokenizer.count(text) == tokens
    assert len(tokenizer.encode(text)) == tokens
    assert tokenizer.encode(text)[:1] == ([] if first_id is None else [first_id])


@pytest.mark.parametrize(
    "pieces",
    [
        ["Hello", ", ", "world", "!"],
        ["  ", "x ", "y"],
        [" \t\n"],
        ["a", "|", "b ", "`", "`"],
        ["a", "\v", "\x00 ", "b"],
        ["héllo ", "wörld"],
        ["e\u0301cole ", "Ελλάδα"],
        ["naïve_x"],
        ["_", "é"],
        ["中", "文 ", "ok"],
        ["text", "日", "本", "語 ", "text"],
        ["か\u3099", "カ", "ﾊ"],
        ["가", "나 ", "다"],
        ["ภ", "า", "ษ", "า", "ไ", "ท", "ย ", "ก็"],
        ["नमस्ते ", "दुनिया"],
        ["سلام", "، ", "دنیا"],
        ["می\u200cخواهم"],
        ["👍🏽", "👍 ", "😀\n"],
        ["👨\u200d👩\u200d👧\u200d👦 ", "hi"],
        ["❤\ufe0f\u200d🔥", "x"],
        ["🇩🇪", "🇫🇷 ", "🇪"],
        ["1\ufe0f\u20e3 ", "#\ufe0f\u20e3"],
        ["🏴\U000e0067\U000e0062\U000e007f", "!"],
        ["a", "\u00a0", "b", "\u3000", "c", "\u2028"],
        ["\ud800", "x"],
        ["😀", "\udc00 "],
    ],
)
def test_pieces(pieces: list[str]) -> None:
    text = "".join(pieces)
    tokenizer = BuiltinTokenizer()
    assert tokenizer.split(text) == (tokenizer.encode(text), pieces)
    assert tokenizer.count(text) == len(pieces)


@given(ANY_TEXT | ASCII_TEXT | MIXED_TEXT)
def test_any_text_splits_into_pieces_that_join_to_it(text: str) -> None:
    tokenizer = BuiltinTokenizer()
    ids, pieces = tokenizer.split(text)
    assert "".join(pieces) == text
    assert all(pieces)
    assert ids == tokenizer.encode(text)
    assert tokenizer.count(text) == len(ids) == len(pieces)
    assert all(0 <= token_id < tokenizer.vocab_size for token_id in ids)


@given(ASCII_TEXT)
def test_ascii_splits_alike_among_other_scripts(text: str) -> None:
    assert _PIECES.findall(text) == _ASCII_PIECES.findall(text)
    assert BuiltinTokenizer().split(text + "中")[1] == [*BuiltinTokenizer().split(text)[1], "中"]


@given(ANY_TEXT | MIXED_TEXT)
def test_ids_are_hashes_of_the_pieces(text: str) -> None:
    ids, pieces = BuiltinTokenizer().split(text)
    assert ids == [fnv1a32(piece.encode("utf-8", "surrogatepass")) for piece in pieces]


@pytest.mark.parametrize(("data", "value"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)])
def test_fnv_vectors(data: bytes, value: int) -> None:
    assert fnv1a32(data) == value
    assert fnv1a32(data[1:], fnv1a32(data[:1])) == value


def test_decoding_gives_back_what_was_encoded() -> None:
    tokenizer = BuiltinTokenizer()
    text = "Grüße, 世界! 👍🏽 "
    ids, pieces = tokenizer.split(text)
    assert tokenizer.decode(ids) == pieces
    assert tokenizer.decode([]) == []


def test_unknown_ids_decode_to_decimals_with_commas_between() -> None:
    tokenizer = BuiltinTokenizer()
    assert tokenizer.decode([1]) == ["1"]
    assert "".join(tokenizer.decode([17, 4, 4294967295])) == "17,4,4294967295"
    (known,) = tokenizer.encode("and ")
    assert tokenizer.decode([1, 2, known, 3]) == ["1,", "2", "and ", "3"]


def test_decoded_text_is_well_formed() -> None:
    tokenizer = BuiltinTokenizer()
    assert tokenizer.decode(tokenizer.encode("a\ud800")) == ["a", "\ufffd"]


def test_memory_is_bounded_and_keeps_what_is_in_use() -> None:
    tokenizer = BuiltinTokenizer()
    (used,) = tokenizer.encode("used")
    (forgotten,) = tokenizer.encode("forgotten")
    for number in range(100_000):
        tokenizer.encode(f"w{number}")
        if number % 100 == 0:
            tokenizer.encode("used")
    assert tokenizer.decode([used]) == ["used"]
    assert tokenizer.decode([forgotten]) == [str(forgotten)]
    assert tokenizer.encode("forgotten") == [forgotten]
    memory = tokenizer._memory
    assert len(memory) + len(memory._old) < 50_000


def test_a_huge_piece_pushes_nothing_out() -> None:
    tokenizer = BuiltinTokenizer()
    (used,) = tokenizer.encode("used")
    for letter in "abcdefghijklmnopqrstuvwxyz":
        tokenizer.encode(letter * 250_000)
    assert tokenizer.decode([used]) == ["used"]
    assert not tokenizer._memory._old


def test_the_ids_of_long_pieces_read_as_digits() -> None:
    tokenizer = BuiltinTokenizer()
    (kept,), (long,) = tokenizer.encode("a" * 1024), tokenizer.encode("a" * 1025)
    assert tokenizer.decode([kept]) == ["a" * 1024]
    # Else a short list of ids could read as gigabytes of text.
    assert tokenizer.decode([long]) == [str(long)]


@pytest.mark.parametrize(
    "text",
    ["a" * 300_000, "_" * 300_000, " " * 300_000, "e\u0301" * 150_000, "👩\u200d" * 150_000, "🇩" * 300_000],
    ids=ascii,
)
def test_long_runs_are_no_trouble(text: str) -> None:
    # A pattern that backtracked or nested would take minutes here, or fail.
    tokenizer = BuiltinTokenizer()
    assert tokenizer.count(text) == len(tokenizer.split(text)[1])


def test_a_giant_piece_is_not_hashed_to_its_end() -> None:
    tokenizer = BuiltinTokenizer()
    (just,) = tokenizer.encode("a" * 65_536)
    assert just == fnv1a32(b"a" * 65_536)
    giants = ["a" * 40_000_000, "a" * 39_999_999 + "b", "a" * 39_999_999]
    started = time.process_time()
    assert len({token for giant in giants for token in tokenizer.encode(giant)}) == 3
    # Some two seconds a piece, were it hashed as others are.
    assert time.process_time() - started < 3
