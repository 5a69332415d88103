"""Options met before are not read again, and nobody can tell."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from llmdsim.config.table import OPTIONS
from llmdsim.reply.ask import Ask
from llmdsim.tokenization.builtin import BuiltinTokenizer
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.chat_request import ChatRequest, decode_chat
from llmdsim.web.errors import ApiError
from llmdsim.web.known_options import LONGEST_KNOWN, MOST_KNOWN, KnownChat, KnownChats, Options
from llmdsim.web.limits import Limits
from llmdsim.web.sampling import sampling
from llmdsim.web.wants import ReplyWants
