"""HTTP/2: connections, their streams as channels of requests, and what they bear with from clients."""
