"""The author of replies: picks what is said by the mode, its length and where it stops."""

from random import Random
from zlib import crc32

from llmdsim.reply.ask import Ask, ReplySettings
from llmdsim.reply.bank import Bank
from llmdsim.reply.composer import Composer
from llmdsim.reply.echo import echo
from llmdsim.reply.length import peer_length, readme_length, unrequested_length
from llmdsim.reply.reply import EchoedIdsReply, LongSentenceReply, Reply, ShortSentenceReply, TextReply
from llmdsim.reply.stopping import stopped
from llmdsim.tokenization import Layout, Prompt, Tokenizer

#: All that a server without a language model says.
ENCODED = "!"

LONG = 2048
"""Tokens above which a random reply keeps no list of its tokens."""


class Author:
    """Writes replies for one process or one rank.

    Asks without a seed draw from one source in the order of arrival, so a server started with `seed` repeats
    itself for the same requests in the same order. An ask with a seed depends on nothing but itself, in any
    process.
    """

    def __init__(self, config: ReplySettings, tokenizer: Tokenizer) -> None:
        self._echoes = config.mode == "echo"
        self._encodes_only = config.mm_encoder_only
        self._speaks = not self._echoes and not self._encodes_only
        self._tokenizer = tokenizer
        self._mark = tokenizer.encode(ENCODED)[0]
        self._echo_ignores_max_tokens = config.echo_ignores_max_tokens
        self._requested_length = peer_length if config.length_histogram == "peer" else readme_length
        self._random = Random(config.seed)
        self._bank = Bank(tokenizer)
        self._openings = self._bank.openings
        self._sentences = self._bank.sentences
        self._size = len(self._sentences)
        self.composer = Composer(config, tokenizer, self._bank)

    def write(self, ask: Ask) -> Reply:
        """The whole reply. A random one of ordinary length takes 1 to 3 µs, some 10 µs with stops."""
        if not self._speaks or ask.plan is not None or ask.stored is not None:
            return self._given(ask)
        random = self._random if ask.seed is None else _seeded(ask.seed, ask.prompt)
        most = ask.max_tokens
        total = most if ask.ignore_eos else self._total(ask, random)
        finish_reason = "length" if total == most else "stop"
        if ask.stop or ask.stop_token_ids:
            ids, texts = self._bank.tokens(total, random)
            return TextReply(*stopped(Layout.of(texts, ids), finish_reason, ask))
        if total > LONG:
            return LongSentenceReply(self._bank.draw(total, random), total, finish_reason)
        # `Bank.draw`, but at once: this is nearly every reply.
        bank = self._sentences
        size = self._size
        draw = random.random
        sentence = self._openings[int(draw() * size)]
        sentences = [sentence]
        missing = total - sentence.total
        while missing > 0:
            sentence = bank[int(draw() * size)]
            sentences.append(sentence)
            missing -= sentence.total
        return ShortSentenceReply(sentences, total, -missing, finish_reason)

    def source(self, ask: Ask) -> Random:
        """Where what is said to it is drawn from."""
        return self._random if ask.seed is None else _seeded(ask.seed, ask.prompt)

    def _total(self, ask: Ask, random: Random) -> int:
        most = ask.max_tokens
        if ask.ignore_eos:
            return most
        rule = unrequested_length if ask.requested_max is None else self._requested_length
        total = rule(most, random)
        return min(ask.min_tokens, most) if total < ask.min_tokens else total

    def _given(self, ask: Ask) -> Reply:
        """One that is not just random sentences."""
        if self._encodes_only:
            return self._encoded(ask)
        if ask.plan is not None:
            random = self.source(ask)
            return self.composer.compose(ask, ask.plan, self._total(ask, random), random)
        return self._echo(ask) if ask.stored is None else self._stored(ask, ask.stored)

    def _stored(self, ask: Ask, said: Layout) -> TextReply:
        """What a dataset says, made longer with sentences only where it must be."""
        least = ask.max_tokens if ask.ignore_eos else ask.min_tokens
        if len(said.ids) < least:
            ids, texts = self._bank.completed(said, least, self.source(ask))
            said = Layout.of(texts, ids)
        finish_reason = "stop"
        if len(said.ids) >= ask.max_tokens:
            said, finish_reason = said.cut(ask.max_tokens), "length"
        return TextReply(*stopped(said, finish_reason, ask))

    def _encoded(self, ask: Ask) -> TextReply:
        """What a server without a language model says: a mark for each token asked for, or one (the peer)."""
        total = ask.max_tokens if ask.requested_max is not None else 1
        return TextReply(Layout.of([ENCODED] * total, [self._mark] * total), "length")

    def _echo(self, ask: Ask) -> Reply:
        """The text asked for, to the letter. `ignore_eos`, or a `min_tokens` beyond its end, adds nothing."""
        finish_reason = "stop"
        echoed = ask.echoed
        if echoed.text is None and not (
            echoed.long or self._tokenizer.added or ask.stop or ask.stop_token_ids
        ):
            total = len(echoed)
            if not self._echo_ignores_max_tokens and total >= ask.max_tokens:
                total, finish_reason = ask.max_tokens, "length"
            return EchoedIdsReply(echoed, total, finish_reason)
        said = echo(ask, self._tokenizer)
        if not self._echo_ignores_max_tokens and len(said.ids) >= ask.max_tokens:
            said = said.cut(ask.max_tokens)
            finish_reason = "length"
        return TextReply(*stopped(said, finish_reason, ask))


def _seeded(seed: int, prompt: Prompt) -> Random:
    """A source for one ask; from the prompt too, so that one seed does not say the same to everybody."""
    if prompt.text is None:
        checksum = crc32(",".join(map(str, prompt.ids)).encode())
    else:
        checksum = crc32(prompt.text.encode())
    # As one non-negative integer: `Random` drops the sign of integers and hashes other types.
    return Random((seed % 2**64) << 32 | checksum)
