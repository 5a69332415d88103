"""Hypothesis without deadlines: a busy machine is no reason to fail."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("llmdsim", deadline=None)
settings.load_profile("llmdsim")
