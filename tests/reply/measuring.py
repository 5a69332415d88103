"""How much processor time something takes."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import process_time


@contextmanager
def cpu_time() -> Iterator[Callable[[], float]]:
    """Yields what gives the seconds spent so far.

    Garbage is not collected, since that would take as long as other tests' objects are many.
    """
    gc.disable()
    try:
        start = process_time()
        yield lambda: process_time() - start
    finally:
        gc.enable()
