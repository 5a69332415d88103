"""Scripted metrics: what `--fake-metrics` has `/metrics` show in place of what is measured."""

from llmdsim.metrics.scripted.page import Scripted

__all__ = ["Scripted"]
