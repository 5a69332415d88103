"""Hashes of blocks, against numbers got from llm-d's own packages and from what vLLM does."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from array import array
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmdsim.engine.kvcache import PLAIN, BlockHash, Content, Extra, Hasher
from llmdsim.engine.kvcache.cbor import cbor
from llmdsim.engine.kvcache.hashing import fnv1a, hasher
from llmdsim.tokenization.prompt import MediaSpan

VLLMS = ("sha256", "sha256_cbor", "sha256_cbor_64bit", "xxhash", "xxhash_cbor")
ALL = (*VLLMS, "fnv_cbor")


def ids(numbers: Iterable[int]) -> array[int]:
    return array("I", numbers)


def chain(algorithm: Hasher, tokens: Sequence[int], size: int, content: Content = PLAIN) -> list[BlockHash]:
    """The hashes of all full blocks."""
    parent = algorithm.root(content.adapter[0] if content.adapter is not None else None)
    hashes = []
    for start in range(0, len(tokens) // size * size, size):
        stop = start + size
        parent = algorithm.block(parent, ids(tokens[start:stop]), content.extra(start, stop))
        hashes.append(parent)
    return hashes


def told(block_hash: BlockHash) -> int:
    """As events have it: the last 64 bits."""
    return block_hash if isinstance(block_hash, int) else int.from_bytes(block_hash[-8:], "big")


def fnv(seed: str, model: str, tokens: Sequence[int], size: int, content: Content = PLAIN) -> list[BlockHash]:
    return chain(hasher("fnv_cbor", seed, model), tokens, size, content)


@pytest.mark.parametrize(
    ("seed", "model", "size", "tokens", "hashes"),
    [
        ("", "m", 8, range(1, 17), [3556222695259344277, 3413529535575050574]),
        ("", "m", 16, range(1, 17), [18216873062712665045]),
        ("42", "m", 8, range(1, 17), [15616400992895737263, 9839789027277261248]),
        (
            "",
            "Qwen/Qwen2.5-1.5B-Instruct",
            8,
            range(1, 17),
            [5714641914956590940, 12106896133780411176],
        ),
        ("", "m", 8, range(1, 20), [3556222695259344277, 3413529535575050574]),
        ("", "m", 8, (0, 23, 24, 255, 256, 65535, 65536, 4294967295), [15172861602351361311]),
        ("", "", 8, range(1, 9), [4459639677620814394]),
        ("0", "модель", 8, range(1, 9), [15954918526916220108]),
        ("", "m", 8, range(1, 25), [3556222695259344277, 3413529535575050574, 10005875326527179124]),
    ],
)
def test_fnv_gives_what_llm_d_gives(
    seed: str, model: str, size: int, tokens: Sequence[int], hashes: list[int]
) -> None:
    assert fnv(seed, model, tokens, size) == hashes


def test_fnv_of_media_is_of_their_identifiers_in_every_block_that_they_touch() -> None:
    image = Content(media=[MediaSpan("sim_img_0_abc", 3, 8)])
    assert fnv("", "m", range(1, 25), 8, image) == [
        873511341992385239,
        12439690879473473222,
        16194258658350126879,
    ]
    two = Content(media=[MediaSpan("a", 0, 2), MediaSpan("b", 4, 2)])
    assert fnv("", "m", range(1, 9), 8, two) == [13419750882893986168]


def test_fnv_has_an_adapter_in_the_place_of_the_model_and_nowhere_else() -> None:
    adapter = Content(adapter=("lora1", "/p"), lora_id=1)
    assert fnv("", "m", range(1, 17), 8, adapter) == [7435113708181250351, 687032135042614087]


def test_fnv_of_a_later_block_is_of_its_parent_alone() -> None:
    for seed, model in (("", "m"), ("42", "n")):
        algorithm = hasher("fnv_cbor", seed, model)
        assert algorithm.block(0x1122334455667788, ids(range(9, 17)), None) == 3321952133763925109


def test_fnv_counts_a_salt_as_llm_d_router_does() -> None:
    salted = fnv("", "m", range(1, 17), 8, Content(salt="s"))
    root = hasher("fnv_cbor", "", "m").root(None)
    tokens = ids(range(1, 9))
    assert salted[0] == fnv1a(cbor((root, tokens, ({"Hash": "s"},))))
    assert salted[1] != fnv("", "m", range(1, 17), 8)[1]


def test_fnv_step_by_step() -> None:
    assert fnv1a(b"") == 0xCBF29CE484222325
    assert cbor((0xCBF29CE484222325, None, "m")).hex() == "831bcbf29ce484222325f6616d"
    assert hasher("fnv_cbor", "", "m").root(None) == 0x9DDB2DB69F3F452C
    assert (
        cbor((0x9DDB2DB69F3F452C, ids(range(1, 9)), None)).hex() == "831b9ddb2db69f3f452c880102030405060708f6"
    )
    media = cbor((1, ids([]), ({"Hash": "a"}, {"Hash": "b"})))
    assert media.hex().endswith("82a1644861736861" + "61a1644861736861" + "62")


def test_fnv_has_two_names() -> None:
    assert hasher("cbor-fnv", "7", "m").root(None) == hasher("fnv_cbor", "7", "m").root(None)


LORA = ("ad1", "/p/ad1")


@pytest.mark.parametrize(
    ("algorithm", "seed", "root", "plain", "extras"),
    [
        (
            "sha256",
            "",
            1178507917319934360,
            [3262291359910021016, 7142137847444424233],
            [4398487264902898313, 7027321370956117732, 1643850575494422705, 1598582361120744865],
        ),
        (
            "sha256_cbor",
            "",
            10672167085007826672,
            [2233398808101521225, 17911472383915781900],
            [11959807963336974888, 16868077126905186569, 3051804683084548411, 17467096099869961617],
        ),
        ("xxhash", "0", None, [12446601617588617037, 15415768829451575322], None),
        ("xxhash_cbor", "0", None, [4168120356241826254, 9934807162112882475], None),
    ],
)
def test_vllms_algorithms_of_0_33(
    algorithm: str, seed: str, root: int | None, plain: list[int], extras: list[int] | None
) -> None:
    made = hasher(algorithm, seed, "m")
    if root is not None:
        assert told(made.root(None)) == told(made.root("ad1")) == root
    assert [told(each) for each in chain(made, range(32), 16)] == plain
    if extras is not None:
        contents = [
            Content(adapter=LORA),
            Content(salt="s1"),
            Content(adapter=LORA, salt="s1"),
            Content(media=[MediaSpan("img", 3, 4)]),
        ]
        assert [told(chain(made, range(16), 16, content)[0]) for content in contents] == extras


@pytest.mark.parametrize(
    ("algorithm", "root", "hashes"),
    [
        ("sha256_cbor", None, [16300212363532267629, 8671309795006503672]),
        (
            "xxhash_cbor",
            bytes.fromhex("a9d2e63407fce1a26c9dc9d7fa2d7caf"),
            [14255326629130133946, 8320077250611386183],
        ),
        ("sha256_cbor_64bit", 12056132650316601216, [9442596223568401980, 10401597220457154048]),
    ],
)
def test_vllms_algorithms_with_a_seed(algorithm: str, root: BlockHash | None, hashes: list[int]) -> None:
    made = hasher(algorithm, "42", "m")
    if root is not None:
        assert made.root(None) == root
    assert [told(each) for each in chain(made, range(1, 33), 16)] == hashes


def test_the_seeded_root_and_an_extra_key_without_its_tag_as_vllm_once_had_it() -> None:
    root = hasher("sha256_cbor", "42", "m").root(None)
    assert isinstance(root, bytes)
    assert root.hex().startswith("9fa6eb003f14")
    digest = hashlib.sha256(cbor((root, ids(range(1, 17)), ("lora1",)))).digest()
    assert told(digest) == 15852514201477661231


@pytest.mark.parametrize(
    ("algorithm", "size"),
    [("sha256", 32), ("sha256_cbor", 32), ("xxhash", 16), ("xxhash_cbor", 16)],
)
def test_digests_are_whole(algorithm: str, size: int) -> None:
    made = hasher(algorithm, "", "m")
    for digest in (made.root(None), made.block(made.root(None), ids(range(16)), None)):
        assert isinstance(digest, bytes)
        assert len(digest) == size


@pytest.mark.parametrize("algorithm", ALL)
def test_without_a_seed_only_xxhash_draws_one(algorithm: str) -> None:
    drawn = hasher(algorithm, "", "m").root(None) != hasher(algorithm, "", "m").root(None)
    assert drawn == algorithm.startswith("xxhash")
    assert hasher(algorithm, "1", "m").root(None) == hasher(algorithm, "1", "m").root(None)


@pytest.mark.parametrize("algorithm", ALL)
def test_r71_hashes_follow_from_the_parent(algorithm: str) -> None:
    made = hasher(algorithm, "1", "m")
    first, second = (made.block(made.root(None), ids([number] * 8), None) for number in (1, 2))
    assert made.block(first, ids([3] * 8), None) != made.block(second, ids([3] * 8), None)


@pytest.mark.parametrize("algorithm", ALL)
def test_whatever_distinguishes_a_prompt_distinguishes_its_blocks(algorithm: str) -> None:
    made = hasher(algorithm, "1", "m")
    contents = [
        PLAIN,
        Content(adapter=("a", "/a")),
        Content(adapter=("b", "/a")),
        Content(salt="s"),
        Content(media=[MediaSpan("i", 0, 8)]),
        Content(media=[MediaSpan("i", 0, 4), MediaSpan("j", 4, 4)]),
        Content(adapter=("a", "/a"), salt="s"),
    ]
    if algorithm != "fnv_cbor":  # which has no part of these
        contents += [Content(adapter=("a", "/b")), Content(media=[MediaSpan("i", 1, 7)])]
    for place in (0, 1):
        assert len({chain(made, range(16), 8, content)[place] for content in contents}) == len(contents)


@given(st.sampled_from(ALL), st.text(min_size=1), st.integers(-5, 5))
@example("sha256", "mm", 0)
@example("sha256", "cache_salt", 0)
def test_a_hash_is_of_values_whether_texts_are_one_object_or_several(
    algorithm: str, text: str, offset: int
) -> None:
    made = hasher(algorithm, "1", "m")
    root = made.root(None)
    again = (text + " ")[:-1]
    one = Extra((text, text), ((text, offset), (text, 8)), text)
    several = Extra((text, again), ((text, offset), (again, 8)), again)
    assert made.block(root, ids(range(8)), one) == made.block(root, ids(range(8)), several)


def test_hashes_are_the_same_in_every_process() -> None:
    code = (
        "from array import array\n"
        "from llmdsim.engine.kvcache import Extra\n"
        "from llmdsim.engine.kvcache.hashing import hasher\n"
        "made = hasher('sha256', '', 'm')\n"
        "extra = Extra(('a', '/a'), (('i', 0), ('i', 4)), 's')\n"
        "print(made.block(made.root('a'), array('I', range(16)), extra).hex())\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_an_unknown_algorithm_is_an_error() -> None:
    with pytest.raises(ValueError, match="md5"):
        hasher("md5", "", "m")


def test_xxhash_is_loaded_only_where_it_is_chosen() -> None:
    code = (
        "import sys\n"
        "from llmdsim.engine.kvcache.hashing import hasher\n"
        "hasher('sha256', '', 'm')\n"
        "assert 'xxhash' not in sys.modules\n"
        "hasher('xxhash', '', 'm')\n"
        "assert 'xxhash' in sys.modules\n"
    )
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=path, check=True)
