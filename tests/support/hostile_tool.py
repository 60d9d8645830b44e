"""A tool that does its worst, one method at a time. Built by `wasi_guests.python_guest`."""
# ruff: noqa: A002, BLE001, PTH123, SIM105 - its worst is what it is for

import json
import os
import random
import sys
import time

import wit_world.exports as exports
from componentize_py_types import Err
from wit_world.imports import kv

_STATE = []


def spin(_):
    while True:
        pass


def sleep(seconds):
    time.sleep(seconds)
    return "slept"


def stubborn(_):
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass


def allocate(_):
    return len(bytearray(1 << 30))


def hoard(_):
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


def recurse(_):
    sys.setrecursionlimit(10**9)

    def deeper(n):
        return deeper(n + 1) + 1

    return deeper(0)


def print_forever(_):
    while True:
        print("x" * 200)


def print_lines(count):
    for at in range(count):
        print("line", at)
    print("the last words", file=sys.stderr, flush=True)


def leave(code):
    sys.exit(code)


def leave_hard(code):
    os._exit(code)


def abort(_):
    os.abort()


def fail(_):
    raise ValueError("the author's own message")


def wrong_type(_):
    return _Raw(5)


def nonsense(_):
    return _Raw("{not json")


def big_output(count):
    return "x" * count


def denied(_):
    kv.set("a", "b")


def denied_and_handled(_):
    try:
        kv.set("a", "b")
    except Err as refused:
        return refused.value.status


def passwd(_):
    with open("/etc/passwd") as file:
        return file.read()


def environment(_):
    return [dict(os.environ), sys.argv]


def stdin(_):
    return sys.stdin.read()


def network(_):
    import socket

    return socket.create_connection(("127.0.0.1", 22), 1)


def shell(_):
    return os.system("id")


def remember(value):
    _STATE.append(value)
    return _STATE


def dice(_):
    return [random.random(), os.urandom(8).hex(), time.time(), time.monotonic(), time.time_ns()]


def echo(value):
    return value


class _Raw:
    def __init__(self, value):
        self.value = value


class Guest(exports.Guest):
    def invoke(self, method, input):
        result = globals()[method](json.loads(input))
        return result.value if isinstance(result, _Raw) else json.dumps(result)
