"""Messages of our gRPC services; `make protos` writes the modules named `…_pb2` from `llmdsim/rpc/proto`."""
