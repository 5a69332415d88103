"""Fixtures for other projects' test suites."""
