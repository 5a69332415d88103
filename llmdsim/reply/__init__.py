"""What is said: a finished reply, written before it is timed."""

from llmdsim.reply.ask import Ask, ReplySettings
from llmdsim.reply.author import Author
from llmdsim.reply.logprobs import Logprob, candidates
from llmdsim.reply.reply import Reply

__all__ = ["Ask", "Author", "Logprob", "Reply", "ReplySettings", "candidates"]
