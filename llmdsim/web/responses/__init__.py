"""`/v1/responses`: requests as conversations, answers as items and their events, and what is kept of them."""
