"""Texts for regular expressions."""

from llmdsim.reply.regex.expression import Regex, Written, regex
from llmdsim.reply.regex.parsing import MAX_PATTERN, InvalidRegexError
from llmdsim.reply.regex.writing import MAX_TEXT

__all__ = ["MAX_PATTERN", "MAX_TEXT", "InvalidRegexError", "Regex", "Written", "regex"]
