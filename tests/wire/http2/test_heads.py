"""Heads: what we encode is what others decode, and a head that is known means what it says."""

from __future__ import annotations

from hpack import Decoder, Encoder
from hpack.table import HeaderTable
from hypothesis import given, settings
from hypothesis import strategies as st

from llmdsim.wire.http2.frames import HEADERS, PREFACE, frame, headers
from llmdsim.wire.http2.heads import NO_TABLE, block_of, encoded
from llmdsim.wire.request import Request
from tests.wire.channel import Server, whole

NAMES = st.one_of(
    st.sampled_from([name for name, _ in HeaderTable.STATIC_TABLE if not name.startswith(b":")]),
    st.from_regex(rb"[a-z][a-z0-9-]{0,200}", fullmatch=True),
)
VALUES = st.one_of(
    st.sampled_from([b"", b"200", b"gzip, deflate"]), st.from_regex(rb"[!-~]{0,400}", fullmatch=True)
)


@settings(max_examples=200)
@given(st.lists(st.tuples(NAMES, VALUES), max_size=8), st.sampled_from([0, 100, 4096]))
def test_every_decoder_understands_our_blocks(listed: list[tuple[bytes, bytes]], room: int) -> None:
    decoder = Decoder()
    decoder.max_allowed_table_size = room
    decoder.max_header_list_size = 1 << 20
    listed = [(b":status", b"200"), *listed]
    for before in (NO_TABLE, b""):
        assert list(decoder.decode(before + encoded(listed), raw=True)) == listed
    assert not decoder.header_table.dynamic_entries


def test_heads_and_trailers_become_blocks() -> None:
    decoder = Decoder()
    head = b"HTTP/1.1 200 OK\r\nServer: llmdsim\r\nconnection: close\r\ncontent-type: text/plain\r\n"
    assert decoder.decode(block_of(head), raw=True) == [
        (b":status", b"200"),
        (b"server", b"llmdsim"),
        (b"content-type", b"text/plain"),
    ]
    assert decoder.decode(block_of(b"grpc-status: 0\r\n"), raw=True) == [(b"grpc-status", b"0")]


def test_large_blocks_are_cut() -> None:
    block = bytes(range(256)) * 10
    data = headers(5, block, False, 1000)
    kinds, joined = [], b""
    while data:
        length = int.from_bytes(data[:3], "big")
        kinds.append((data[3], data[4]))
        joined += data[9 : 9 + length]
        data = data[9 + length :]
    assert joined == block
    assert kinds == [(1, 0), (9, 0), (9, 4)]


REQUESTS = st.lists(
    st.lists(
        st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([b"1", b"2", b"x" * 900])), max_size=4
    ),
    min_size=2,
    max_size=14,
)


@settings(max_examples=200, deadline=None)
@given(REQUESTS, st.lists(st.sampled_from([None, 0, 64, 1000, 4096]), min_size=14, max_size=14))
def test_a_head_means_what_it_says_however_tables_change(
    requests: list[list[tuple[bytes, bytes]]], sizes: list[int | None]
) -> None:
    """Clients put headers into the table, find them there, push others out, and change its size."""
    seen: list[dict[bytes, bytes]] = []

    def answer(request: Request) -> None:
        seen.append({name: value for name, value in request.headers.items() if name != b"host"})
        whole(request)

    server = Server(answer)
    client = server.connect().send(PREFACE + frame(4, 0, 0, b""))
    encoder = Encoder()
    for number, (listed, size) in enumerate(zip(requests, sizes, strict=False)):
        if size is not None:
            encoder.header_table_size = size
        pseudo = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"sim")]
        block = encoder.encode([*pseudo, *listed])
        client.send(headers(2 * number + 1, block, True, 16384))
    wanted: list[dict[bytes, bytes]] = []
    for listed in requests:
        joined: dict[bytes, bytes] = {}
        for name, value in listed:
            joined[name] = joined[name] + b", " + value if name in joined else value
        wanted.append(joined)
    assert seen == wanted


def test_a_head_is_known_again() -> None:
    server = Server(whole)
    client = server.connect().send(PREFACE + frame(4, 0, 0, b""))
    encoder = Encoder()
    reader = client.protocol._reader
    pseudo = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/x"), (b":authority", b"sim")]
    for number in range(4):
        block = encoder.encode([*pseudo, (b"x", b"y")])
        client.send(frame(HEADERS, 4, 2 * number + 1, block) + frame(0, 1, 2 * number + 1, b"%d" % number))
        assert len(reader._known) == min(number, 1)
    assert [request.body for request in server.requests] == [b"0", b"1", b"2", b"3"]
    assert len({id(request.headers) for request in server.requests}) == 2
