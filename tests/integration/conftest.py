"""The daemons these tests drive."""

from tests.integration.fixtures import client, daemon, daemon_with

__all__ = ["client", "daemon", "daemon_with"]
