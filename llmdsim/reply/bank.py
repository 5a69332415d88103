"""The sentences that random replies are made of, tokenized and JSON-encoded once."""

from array import array
from itertools import accumulate
from random import Random

import msgspec

from llmdsim.tokenization import Layout, Tokenizer

SENTENCES = (
    "The ferry leaves at seven, so we should be at the pier before the fog lifts. ",
    "Nobody expected the old clock to start again. ",
    "Add two cups of flour, a pinch of salt, and enough warm water to make a soft dough. ",
    "It depends. ",
    "A glacier moves slowly, but over a thousand years it can carve a valley out of solid rock. ",
    "She kept every letter in a wooden box under the stairs. ",
    "First, check that the cable is plugged in; then restart the router and wait a minute. ",
    "Rivers do not hurry, yet they always arrive. ",
    "In 1969 about 600 million people watched the same grainy picture at the same time. ",
    "Yes, that should work. ",
    "The bakery on the corner sells out of rye bread by nine o'clock on most mornings. ",
    "If the sum of the digits is divisible by three, so is the number itself. ",
    "Bees tell each other where the flowers are by dancing. ",
    "Let me put it another way: the map is useful because it leaves things out. ",
    "My grandmother could name every star in the winter sky, and she was never wrong. ",
    "A good test fails for exactly one reason. ",
    "The committee met on Tuesday, argued until dusk, and postponed the vote once more. ",
    "Copper turns green because it reacts with air, water and a little salt from the sea. ",
    "Turn left after the bridge, pass the school, and look for a house with a blue door. ",
    "Honey never really spoils. ",
    "Most of the noise in the recording came from the refrigerator in the next room! ",
    "Why do cats land on their feet? ",
    "Light takes a little more than eight minutes to travel from the Sun to the Earth. ",
    "There are three options (cheap, quick or good), and you may pick two of them. ",
    "He read the instructions twice, sighed, and opened the toolbox. ",
    "The library stays open late during exams; coffee is allowed, but sandwiches are not. ",
    "Rain is likely in the north, with sunny spells and a light breeze everywhere else. ",
    "An octopus has three hearts, nine brains and no bones at all. ",
    "To sum up, the second plan costs less and can be finished before the summer. ",
    "We planted forty-two apple trees that spring, and thirty-nine of them survived. ",
    "Please keep the receipt. ",
    "The pianist paused, turned a page that was not there, and played the rest from memory. ",
    "Paper was once made from rags, which is why old books have aged better than newer ones. ",
    "Perhaps the simplest explanation is that someone forgot to close the window. ",
    "Trains to the coast run every half hour, except on Sundays and public holidays. ",
    "A prime number greater than two is always odd. ",
    "The market smells of oranges, wet stone and roasted coffee. ",
    "When the wind drops, the whole lake becomes a mirror for about ten minutes. ",
    "Salt lowers the freezing point of water, so icy roads are salted in winter. ",
    "Her first violin had cost less than the case it came in. ",
    "Measure twice and cut once, as carpenters like to say. ",
    "The dog barked at the moon, the moon did not answer, and both seemed content. ",
    "Half of the answers were right; the other half were interesting. ",
    "On clear days you can see the island from the top of the lighthouse, 12 miles away. ",
    "Thank you for asking! ",
    "A short walk after lunch does more for a tired mind than another cup of tea. ",
)
"""English, ASCII, each ending in a blank, so that any sequence of them reads as text."""


#: What any sentence may stand behind.
_OPENING = SENTENCES[3]


class Sentence:
    """One sentence as parallel lists over its tokens; `json` holds texts as the insides of JSON strings.

    `packed` are the ids as the bytes of an array. `json_text` is all of `json` in one, and `json_sizes` how
    many bytes of it the last tokens take, by how many they are.
    """

    __slots__ = ("ids", "json", "json_sizes", "json_text", "packed", "texts", "total")

    def __init__(self, ids: list[int], texts: list[str]) -> None:
        self.ids, self.texts = ids, texts
        self.total = len(ids)
        self.packed = array("I", ids).tobytes()
        self.json = [msgspec.json.encode(piece)[1:-1] for piece in texts]
        self.json_text = b"".join(self.json)
        self.json_sizes = list(accumulate(map(len, reversed(self.json)), initial=0))


class Bank:
    """The sentences in one tokenizer's tokens. Every sentence has at least one token.

    `openings` are as they begin a text, and `sentences`, in the same order, as they follow others: a
    tokenizer has the blank between two with the first or, as most models do, with the second.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        bare = _OPENING.rstrip()
        _, texts = tokenizer.split(_OPENING + SENTENCES[0])
        if len(bare) in accumulate(map(len, texts)):
            self.openings = [Sentence(*tokenizer.split(text.rstrip())) for text in SENTENCES]
            self.sentences = [
                Sentence(*_following(tokenizer, bare, " " + text.rstrip())) for text in SENTENCES
            ]
        else:
            self.openings = self.sentences = [Sentence(*tokenizer.split(text)) for text in SENTENCES]
        self._longest = max(sentence.total for sentence in self.sentences)

    def draw(self, total: int, random: Random, opens: bool = True) -> list[Sentence]:
        """Random sentences, just as many as it takes to have `total` tokens; the first may begin a text."""
        bank = self.sentences
        size = len(bank)
        draw = random.random
        sentences: list[Sentence] = []
        missing = total
        if opens and missing > 0:
            sentences.append(self.openings[int(draw() * size)])
            missing -= sentences[0].total
        while missing > 0:
            # So many are needed in any case; drawing them together saves most of the time of long replies.
            more = [bank[int(draw() * size)] for _ in range(missing // self._longest or 1)]
            sentences += more
            missing -= sum([sentence.total for sentence in more])
        return sentences

    def tokens(self, total: int, random: Random, opens: bool = True) -> tuple[list[int], list[str]]:
        """Ids and texts of `total` tokens of random sentences, the last one cut."""
        sentences = self.draw(total, random, opens)
        ids = [token_id for sentence in sentences for token_id in sentence.ids]
        texts = [text for sentence in sentences for text in sentence.texts]
        return ids[:total], texts[:total]

    def completed(self, said: Layout, least: int, random: Random) -> tuple[list[int], list[str]]:
        """Ids and texts of what was said; random sentences follow where it is below `least` tokens."""
        ids, texts = self.tokens(least - len(said.ids), random, opens=False)
        return said.ids.tolist() + ids, said.texts + texts


def _following(tokenizer: Tokenizer, before: str, text: str) -> tuple[list[int], list[str]]:
    """The tokens of a text behind another one."""
    ids, texts = tokenizer.split(before + text)
    ends = list(accumulate(map(len, texts)))
    if len(before) not in ends[:-1]:
        return tokenizer.split(text)
    start = ends.index(len(before)) + 1
    return ids[start:], texts[start:]
