"""How it is put: the HTTP API, one module per API family."""
