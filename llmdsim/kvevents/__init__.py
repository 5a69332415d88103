"""KV cache events on the wire."""
