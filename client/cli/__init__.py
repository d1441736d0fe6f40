"""The `headrace` command.

gRPC's core writes text of its own to standard error, past Python's logging: a line for each TLS handshake that fails.
The command says itself what went wrong, and the log of a server may be JSON, so only the core's errors are let through.
GRPC_VERBOSITY in the environment decides otherwise; it is read when gRPC is imported.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
