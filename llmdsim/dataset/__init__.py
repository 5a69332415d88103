"""`llmdsim dataset`: makes datasets of conversations, and looks into them."""
