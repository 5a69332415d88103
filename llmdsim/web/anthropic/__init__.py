"""Anthropic's Messages API, as vLLM 0.33 serves it: a conversion to and from chat."""
