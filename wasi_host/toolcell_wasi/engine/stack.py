"""The calling thread's stack, on which a guest runs.

wasmtime checks the guest's own limit and nothing else: a thread whose stack ends before that
limit is reached dies with SIGSEGV, and the process with it. Threads of Python have 8 MiB unless
somebody called `threading.stack_size`; each thread is looked at once.
"""

import ctypes
import threading

from toolcell_wasi.engine.errors import StackTooSmall

HOST_FRAMES_BYTES = 1024 * 1024
"""What wasmtime and the Python of the host functions need below and above the guest's frames."""

_checked = threading.local()
_libc = ctypes.CDLL(None)


def require_stack(guest_bytes: int) -> None:
    """Raises :class:`StackTooSmall` where this thread's stack can't hold a guest's."""
    if getattr(_checked, "bytes", 0) >= guest_bytes:
        return
    size = _stack_bytes()
    if size < guest_bytes + HOST_FRAMES_BYTES:
        raise StackTooSmall(
            f"this thread's stack has {size >> 10} KiB; a guest needs "
            f"{(guest_bytes + HOST_FRAMES_BYTES) >> 10} (see threading.stack_size)"
        )
    _checked.bytes = guest_bytes


def _stack_bytes() -> int:
    """Size of the stack of the calling thread (`pthread_getattr_np(3)`)."""
    attributes = ctypes.create_string_buffer(256)  # pthread_attr_t has 56 bytes in glibc
    address, size = ctypes.c_void_p(), ctypes.c_size_t()
    _libc.pthread_self.restype = ctypes.c_void_p
    if _libc.pthread_getattr_np(ctypes.c_void_p(_libc.pthread_self()), attributes) != 0:
        return 0
    _libc.pthread_attr_getstack(attributes, ctypes.byref(address), ctypes.byref(size))
    _libc.pthread_attr_destroy(attributes)
    return size.value
