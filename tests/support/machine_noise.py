"""How late this machine is by itself, so that a test of a deadline does not fail for it.

The machines that tests run on share their cores. A process of its own that does nothing but sleep
is late by what the scheduler costs everybody; what is beyond that, our interpreter's lock
included, is ours.
"""

import subprocess
import sys

_SLEEPER = """
import select, sys, time
late = [0.0]
print(flush=True)
then = time.monotonic()
while not select.select([sys.stdin], [], [], 0.005)[0]:
    now = time.monotonic()
    late.append((now - then) * 1000 - 5)
    then = now
late.sort()
print(late[len(late) * 99 // 100], late[-1])
"""


class MachineNoise:
    """Measures while its block runs; afterwards, in milliseconds by which a sleep overslept:

    `p99_ms`, above which one in a hundred was, and `worst_ms`.
    """

    def __enter__(self):
        self._sleeper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SLEEPER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C that a test sends is not for it
        )
        self._sleeper.stdout.readline()
        return self

    def __exit__(self, *_exc):
        told, _ = self._sleeper.communicate(input="")
        self.p99_ms, self.worst_ms = map(float, told.split())
