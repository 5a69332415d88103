"""How it is put, in messages: the gRPC services."""
