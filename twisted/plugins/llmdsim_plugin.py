"""What `twistd` reads to offer its `llmdsim` subcommand."""

from twisted.application.service import ServiceMaker

llmdsim = ServiceMaker(  # type: ignore[no-untyped-call]
    "llmdsim",
    "llmdsim.tap",
    "A vLLM server without a model: its API, metrics and pace on one CPU core.",
    "llmdsim",
)
