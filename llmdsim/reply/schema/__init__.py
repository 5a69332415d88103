"""Values for JSON schemas."""

from llmdsim.reply.schema.schema import Generated, Schema
from llmdsim.reply.schema.settings import ValueSettings

__all__ = ["Generated", "Schema", "ValueSettings"]
