"""The worker protocol, the host's side: JSON-RPC 2.0, one text per line, strict and bounded.

`message` has the form of one message, `conversation` the order of them. Neither does any I/O: the
cell's loop (`toolcell_oops.cell`) reads and writes.
"""
