"""Print docs/options.md: `python -m llmdsim.config > docs/options.md`."""

import sys

from llmdsim.config.help import options_markdown

if __name__ == "__main__":
    sys.stdout.write(options_markdown())
