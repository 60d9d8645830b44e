"""Ahead-of-time compilation: in a limited child process, kept in an authenticated cache.

Owns the way from a component's bytes to native code that may be loaded. Compiled code is code of
the host's own process: nothing comes back from here whose origin was not checked on the very
bytes that are loaded.
"""
