"""llmdsim: a vLLM server without a model."""

__version__ = "0.1.0"
