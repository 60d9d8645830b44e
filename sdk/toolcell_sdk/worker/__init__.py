"""The out-of-process cell's side of the protocol: JSON-RPC 2.0 over one UNIX socket.

Runs inside a cell, as `python -m toolcell_sdk.worker MODULE`, and serves the `@method` functions of
MODULE to the host: the same dispatch and the same clients as in a component, over another
transport. `docs/oops.md` has the protocol, which a worker in any language can speak. Standard
library only.
"""
