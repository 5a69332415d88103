"""Text into tokens and back, and conversations into prompt text."""

from llmdsim.tokenization.builtin import BuiltinTokenizer
from llmdsim.tokenization.chat import last_text, render_chat
from llmdsim.tokenization.prompt import Layout, Prompt
from llmdsim.tokenization.tokenizer import Tokenizer
from llmdsim.tokenization.unicode import well_formed

__all__ = ["BuiltinTokenizer", "Layout", "Prompt", "Tokenizer", "last_text", "render_chat", "well_formed"]
