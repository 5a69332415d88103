"""SubscribeKvEvents: what becomes of KV blocks, batch by batch, and how busy the engine is."""
