"""`python -m toolcell_sdk.worker MODULE`: what the oops lane starts in a Python cell.

Descriptor 3 is the socket to the host. The tool's own source is in `/tool/app`, vendored packages
in `/tool/lib`; both come before the standard library, as they would for a script.
"""

import os
import socket
import sys

from toolcell_sdk.worker.connection import Connection, ConnectionLost
from toolcell_sdk.worker.serve import serve

SOURCE = "/tool/app"
VENDORED = "/tool/lib"
SOCKET_DESCRIPTOR = 3


def main(module: str) -> None:
    """Serves until the host is done with us; then leaves at once, threads of the tool or not."""
    sys.path[:0] = [SOURCE, VENDORED]
    sys.argv = [module]
    link = socket.socket(fileno=SOCKET_DESCRIPTOR)
    try:
        serve(Connection(link), module, SOURCE)
    except ConnectionLost:
        os._exit(0)


main(sys.argv[1])
