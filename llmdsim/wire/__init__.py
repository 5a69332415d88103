"""Over what: HTTP/1.1 protocol, transports, SSE framing and limits; bytes and connections only."""
