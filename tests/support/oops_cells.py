"""Cells of hostile modules: prepared in a real lane, called under the real broker."""

import hashlib
from contextlib import contextmanager

from oops_sessions import make_session
from oops_tools import module_archive

from toolcell.artifact.open import read_contents
from toolcell.lane import Request
from toolcell_oops.lane import OopsLane

HEAD = """
import json, os, socket, sys, time
from toolcell_sdk import kv, method
wire = socket.socket(fileno=os.dup(3))
"""
"""What every hostile module begins with: the raw socket to the host."""


class Unsigned:
    """An artifact whose signature nobody looks at: a lane gets verified ones only."""

    publisher = "test"

    def __init__(self, archive: bytes):
        self._contents = read_contents(archive)
        self.manifest = self._contents.manifest
        self.digest = "sha256:" + hashlib.sha256(archive).hexdigest()

    def read(self, name):
        return bytes(self._contents.data(name))


@contextmanager
def prepared(lane: OopsLane, source: str, **fields):
    """The module `source` after `HEAD`, ready to be called in `lane`."""
    made = lane.prepare(Unsigned(module_archive(HEAD + source, **fields)))
    try:
        yield made
    finally:
        made.close()


def call(cell, value=b"{}", session=None, **fields):
    """One call in a fresh cell; returns the outcome."""
    session = session or make_session(**fields)
    try:
        return cell.invoke(Request("go", value), session)
    finally:
        session.broker.close()


def run(lane: OopsLane, source: str, capabilities=(), **fields):
    """One call of `go` of the module `source`; returns the outcome."""
    with prepared(lane, source, capabilities=capabilities) as cell:
        return call(cell, allowed_host_apis=capabilities, **fields)
