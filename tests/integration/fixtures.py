"""Fixtures of daemons shared by their flags, for the folders whose tests drive the real one."""

from collections.abc import Iterator

import pytest

from tests.integration.client import Client
from tests.integration.daemon import SHARED, Daemon, Pool


@pytest.fixture(scope="session")
def daemon_with() -> Iterator[Pool]:
    """`daemon_with(*flags)`: a daemon that other tests with the same flags use too."""
    yield SHARED
    SHARED.end()


@pytest.fixture
def daemon(daemon_with: Pool) -> Daemon:
    """A daemon at its defaults."""
    return daemon_with()


@pytest.fixture
def client(daemon: Daemon) -> Client:
    """A client of it."""
    return daemon.client
