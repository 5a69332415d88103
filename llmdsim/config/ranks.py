"""The data-parallel ranks that a configuration asks for, and the configuration of each."""

from dataclasses import replace
from random import Random

from llmdsim.config.table import Config


def rank_numbers(config: Config) -> range:
    """The ranks of this server: all of `--data-parallel-size`, or that of `--data-parallel-rank`."""
    only = config.data_parallel_rank
    return range(config.data_parallel_size) if only < 0 else range(only, only + 1)


def rank_config(config: Config, number: int) -> Config:
    """What rank `number` is configured as: as a server that was started with `--data-parallel-rank` would be.

    Its port is `--port` and the ranks before it in this server, and so on with `--grpc-port`; its endpoints
    come in turn with those of the others, and its seed is one of its own; rank 0 keeps the one given. A
    configuration without ranks stays what it is.
    """
    numbers = rank_numbers(config)
    if config.data_parallel_rank < 0 and len(numbers) == 1:
        return config
    place, ranks = numbers.index(number), len(numbers)
    return replace(
        config,
        data_parallel_rank=number,
        port=config.port + place,
        grpc_port=config.grpc_port and config.grpc_port + place,
        listen=config.listen[place::ranks],
        admin_listen=config.admin_listen[place::ranks],
        seed=rank_seed(config.seed, number),
    )


def rank_seed(seed: int | None, number: int) -> int | None:
    """The seed of a rank, which has nothing to do with that of any other rank, or of another seed."""
    if seed is None or number == 0:
        return seed
    return Random(f"rank {number} {seed}").getrandbits(48)
