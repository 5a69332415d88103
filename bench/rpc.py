"""Measures gRPC: what a token of Generate costs, and how well paced streams keep time.

    python bench/rpc.py [--cases cost,pace] [--rounds 3] [--against 'COMMAND'] [--client grpcio] [--json FILE]

Every figure is the median of the rounds; the servers take turns. bench/README.md says what the figures mean.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable

import comparison
import http2
from http2 import Call, Calls
from load import GRACE, Outcome
from server import Server, cpu_seconds, memory_mb

from llmdsim.rpc.pb.vllm_engine_pb2 import GenerateRequest, GenerateResponse

METHOD = "/vllm.grpc.engine.VllmEngine/Generate"
FLAGS = [
    # A reply repeats the prompt: that has the same length everywhere, where not all servers heed ignore_eos.
    *("--model", "m", "--mode", "echo", "--force-dummy-tokenizer", "--max-model-len", "4096"),
    *("--max-num-seqs", "2048", "--max-waiting-queue-length", "10000"),
]
PACED = ["--time-to-first-token", "100ms", "--inter-token-latency", "20ms"]
TTFT, ITL, TOKENS = 0.1, 0.02, 100  # of the paced streams: seconds, and as PACED says
WARM_UP = 0.5  # seconds: what is loaded at the first call, and compiled while running, is not measured

Client = Callable[..., Calls]


def generate(tokens: int, *, stream: bool) -> bytes:
    """A request that is answered with so many tokens."""
    request = GenerateRequest(request_id="bench", stream=stream)
    request.tokenized.input_ids.extend(range(1000, 1000 + tokens))
    request.sampling_params.max_tokens = tokens
    request.sampling_params.ignore_eos = True
    return request.SerializeToString()


def grpcio(
    port: int,
    method: str,
    message: bytes,
    *,
    connections: int,
    streams: int,
    seconds: float = 0.0,
    spread: float = 0.0,
) -> Calls:
    """As `http2.drive`, by grpcio, which stamps messages when it has got round to them."""
    import grpc.aio  # noqa: PLC0415 - only when it is asked for

    done = Calls()
    start = time.monotonic()

    async def one(channel: grpc.aio.Channel, number: int) -> None:
        ask = channel.unary_stream(method)
        await asyncio.sleep(spread * number / streams)
        while True:
            call = Call()
            call.sent = time.time()
            try:
                async for answer in ask(message, timeout=seconds + GRACE):
                    call.messages.append((time.time(), answer))
            except grpc.aio.AioRpcError as error:
                call.failure = f"{error.code()}: {error.details()}"
            done.ended.append(call)
            if time.monotonic() - start >= seconds:
                return

    async def everyone() -> None:
        # Each channel has a connection of its own.
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) for _ in range(connections)]
        await asyncio.gather(*(one(channels[number % connections], number) for number in range(streams)))
        for channel in channels:
            await channel.close()

    asyncio.run(everyone())
    done.wall = time.monotonic() - start
    return done


CLIENTS: dict[str, Client] = {"sockets": http2.drive, "grpcio": grpcio}


def outcome(calls: Calls, tokens: int, *, stream: bool) -> Outcome:
    """What came of them; each must have brought all of its tokens, or the program ends."""
    result = Outcome(wall=calls.wall, late_p99=calls.late_p99)
    for call in calls.ended:
        stamps: list[float] = []
        reason = ""
        for stamp, message in call.messages:
            answer = GenerateResponse.FromString(message)
            reason = answer.complete.finish_reason
            # The last message of a stream tells some again, or none.
            ids = answer.chunk.token_ids if stream else answer.complete.output_ids
            stamps += [stamp] * len(ids)
        if call.failure or len(stamps) != tokens or reason != "length":
            sys.exit(f"a call of {tokens} tokens failed: {call.failure or f'{len(stamps)} came, {reason!r}'}")
        result.answers.append((call.sent, stamps))
    return result


class Bench:
    """Runs one case at a time against one server command; a case gives figures by name."""

    def __init__(self, given: argparse.Namespace, server_cpu: int | None) -> None:
        self._drive = CLIENTS[given.client]
        self._given = given
        self._cpu = server_cpu
        self.cases: dict[str, Callable[[str], dict[str, float]]] = {"cost": self.cost, "pace": self.pace}

    def _measured(
        self, server: Server, tokens: int, *, stream: bool, streams: int, seconds: float, spread: float = 0.0
    ) -> tuple[Outcome, float]:
        """What came of a load, and the server's CPU time for it, microseconds."""
        connections = min(self._given.connections, streams)
        message = generate(tokens, stream=stream)
        before = cpu_seconds(server.pid)
        calls = self._drive(
            server.port,
            METHOD,
            message,
            connections=connections,
            streams=streams,
            seconds=seconds,
            spread=spread,
        )
        used = (cpu_seconds(server.pid) - before) * 1e6
        return outcome(calls, tokens, stream=stream), used

    def cost(self, command: str) -> dict[str, float]:
        """CPU of a streamed token at full speed, and of an answer of one token."""
        figures: dict[str, float] = {}
        streams, reply = self._given.full_speed_streams, self._given.reply
        with Server(command, FLAGS, self._cpu) as server:
            for name, tokens, stream in (("token", reply, True), ("request", 1, False)):
                for lasting in (WARM_UP, self._given.seconds):
                    load, used = self._measured(
                        server, tokens, stream=stream, streams=streams, seconds=lasting
                    )
                done = load.tokens
                figures |= {f"cpu_us_per_{name}": used / done, f"{name}s_per_s": done / load.wall}
        return figures

    def pace(self, command: str) -> dict[str, float]:
        """Timing of paced streams, CPU a token and memory, for each number of streams."""
        figures: dict[str, float] = {}
        for streams in (int(each) for each in self._given.streams.split(",")):
            with Server(command, [*FLAGS, *PACED], self._cpu) as server:
                self._measured(server, 1, stream=True, streams=8, seconds=WARM_UP)
                load, used = self._measured(
                    server, TOKENS, stream=True, streams=streams, seconds=0.0, spread=3 * ITL
                )
                if load.late_p99 > ITL / 2:
                    late = f"{load.late_p99 * 1e3:.0f} ms"
                    print(f"this program read {late} late (p99): errors are partly its own", file=sys.stderr)
                here = {
                    "wall_s": load.wall,
                    **load.timing(TTFT, ITL),
                    "cpu_us_per_token": used / load.tokens,
                    "memory_mb": memory_mb(server.pid),
                }
                figures |= {f"{streams}_streams_{name}": value for name, value in here.items()}
        return figures


def main() -> None:
    """Runs the rounds, prints the table, writes the JSON."""
    options = comparison.options(__doc__, "cost,pace", 3)
    options.add_argument("--client", default="sockets", choices=CLIENTS, help="who asks (%(default)s)")
    options.add_argument("--connections", type=int, default=8, help="that streams share (%(default)s)")
    options.add_argument("--seconds", type=float, default=4.0, help="of each full-speed load (%(default)s)")
    options.add_argument("--full-speed-streams", type=int, default=64, help="at a time (%(default)s)")
    options.add_argument("--reply", type=int, default=32, help="tokens of a full-speed answer (%(default)s)")
    options.add_argument("--streams", default="400,1000", help="of the paced case (%(default)s)")
    given = options.parse_args()
    comparison.compare(given, Bench(given, comparison.server_cpu()).cases, comparison.of_rounds)


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyboardInterrupt) as error:
        sys.exit(str(error) or "interrupted")
