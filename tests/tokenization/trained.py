"""Small tokenizers of each kind, trained here on a few words."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from llmdsim.reply.bank import SENTENCES
from llmdsim.tokenization.pretrained import PretrainedTokenizer

CORPUS = [*SENTENCES, *SENTENCES, "世界 héllo 😀👍🏽 ünïcode Привет"]


def byte_level() -> Any:
    """As of GPT-2, Llama 3 and Qwen, with a token at the beginning of a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _train(tokenizer, trainers.BpeTrainer, ["<s>", "</s>"], initial_alphabet=alphabet)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer


def byte_fallback() -> Any:
    """As of Llama 2 and Mistral: a mark for blanks, and bytes for what has no token."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    _train(tokenizer, trainers.BpeTrainer, ["<unk>", "<s>", "</s>"])
    # Bytes are no special tokens, as those of the trainer are.
    model = json.loads(tokenizer.to_str())
    vocabulary = model["model"]["vocab"]
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    tokenizer = Tokenizer.from_str(json.dumps(model))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def word_piece() -> Any:
    """As of BERT: small letters, blanks left out, tokens at both ends of a text."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    _train(tokenizer, trainers.WordPieceTrainer, ["[UNK]", "[CLS]", "[SEP]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return tokenizer


KINDS = {"byte level": byte_level, "byte fallback": byte_fallback, "word piece": word_piece}


@functools.cache
def trained(kind: str) -> PretrainedTokenizer:
    """One for all tests."""
    return PretrainedTokenizer(KINDS[kind]())


def write(folder: Path, tokenizer: Any, **settings: Any) -> Path:
    """The files of a model, as they are on the hub."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def _train(tokenizer: Any, trainer: Any, special: list[str], **options: Any) -> None:
    tokenizer.train_from_iterator(
        CORPUS, trainer(vocab_size=700, special_tokens=special, show_progress=False, **options)
    )
