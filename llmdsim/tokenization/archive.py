"""A tokenizer's files as a ZIP archive, the same bytes for the same files."""

from __future__ import annotations

from errno import ENOENT
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from llmdsim.tokenization.files import GENERATION, MODEL, OLD_TEMPLATE, SETTINGS, SPECIAL_TOKENS, TOKENIZER

#: What the archive holds where it is there (SMG's servicer): these files, then any others of these kinds.
_FILES = (
    *(TOKENIZER, SETTINGS, MODEL, GENERATION, SPECIAL_TOKENS, "vocab.json", "merges.txt"),
    *("tokenizer.model", "tiktoken.model", OLD_TEMPLATE),
    *("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"),
)
_KINDS = ("*.tiktoken", "*.jinja", "*.model")


def archive(folder: str) -> bytes:
    """Made of the files right in the folder; a quarter of a second for most. Raises OSError."""
    path = Path(folder)
    names = [*_FILES, *[file.name for kind in _KINDS for file in sorted(path.glob(kind))]]
    made = BytesIO()
    with ZipFile(made, "w") as files:
        for name in dict.fromkeys(names):
            if (path / name).is_file():
                # It has no time of its own, unlike one that is made for the file.
                entry = ZipInfo(name)
                entry.compress_type = ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                files.writestr(entry, (path / name).read_bytes())
    if not files.filelist:
        raise FileNotFoundError(ENOENT, "there are none")
    return made.getvalue()
