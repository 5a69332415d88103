"""The routes of pooling models: embeddings, pooling, scores, reranking and classification."""
