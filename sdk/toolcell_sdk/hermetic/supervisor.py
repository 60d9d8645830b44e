"""Runs one program with frozen surroundings: `python -I -m toolcell_sdk.hermetic.supervisor`.

Owns the order of the stages: fork, trace, filter, exec, stop the clock, answer until the last
process is gone. It is a process of its own because it forks and waits: neither is safe in a host
with threads. Must never run the program without the answers: a stage that fails ends it, with the
stage's name on stderr and exit status 125. Called by `toolcell_sdk.hermetic.run`.
"""

import fcntl
import os
import select
import signal
import socket
import sys

from toolcell_sdk.hermetic import kernel, vdso
from toolcell_sdk.hermetic.answers import Answers


def _child(machine: kernel.Machine, channel: socket.socket, argv: list[str]) -> None:
    try:
        kernel.die_with_parent()
        kernel.ask_to_be_traced()
        listener = kernel.install_listener(machine)
        socket.send_fds(channel, [b"L"], [listener])
        os.execv(argv[0], argv)  # noqa: S606 - the supervisor's own argument list, no shell
    except OSError as error:
        os.write(2, f"hermetic set-up failed: {error}\n".encode())
    finally:
        os._exit(kernel.SETUP_FAILED)


def _serve(listener: int, answers: Answers) -> None:
    poller = select.poll()
    poller.register(listener, select.POLLIN)
    while True:
        ((_descriptor, events),) = poller.poll()
        if not events & select.POLLIN:
            return  # the last process under the filter is gone
        notification = bytearray(80)
        try:
            fcntl.ioctl(listener, kernel.SECCOMP_IOCTL_NOTIF_RECV, notification)
            call = kernel.parse_call(notification)
            reply = bytearray(kernel.answer(call, answers.answer(call)))
            fcntl.ioctl(listener, kernel.SECCOMP_IOCTL_NOTIF_SEND, reply)
        except FileNotFoundError:
            continue  # ENOENT: the caller was killed meanwhile


def _listener_of(channel: socket.socket) -> int | None:
    _message, descriptors, _flags, _address = socket.recv_fds(channel, 1, 1)
    return descriptors[0] if descriptors else None


def run(argv: list[str], root: str) -> int:
    """Runs `argv` hermetically and returns its exit status (128 + signal where one ended it)."""
    machine = kernel.machine()
    if machine is None:
        os.write(2, b"hermetic set-up failed: not 64-bit Linux on x86-64 or AArch64\n")
        return kernel.SETUP_FAILED
    kernel.die_with_parent()
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _child(machine, theirs, argv)
    theirs.close()
    listener = _listener_of(ours)
    ours.close()
    _pid, status = os.waitpid(pid, 0)
    if listener is None or not os.WIFSTOPPED(status) or os.WSTOPSIG(status) != signal.SIGTRAP:
        return kernel.SETUP_FAILED
    vdso.freeze(pid)
    kernel.detach(pid)
    answers = Answers(machine, root)
    try:
        _serve(listener, answers)
    finally:
        answers.close()
    _pid, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(run(sys.argv[2:], sys.argv[1]))
