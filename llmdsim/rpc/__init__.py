"""The gRPC services: calls, which are requests over HTTP/2, answered by the same engine."""
