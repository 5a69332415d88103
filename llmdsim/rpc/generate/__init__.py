"""`Generate` of vLLM's engine service: ids or text in, ids out."""
