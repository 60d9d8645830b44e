"""A tool that does its worst, one method at a time. Built by `wasi_guests.python_guest`."""
# ruff: noqa: A002, BLE001, PTH123, SIM105 - its worst is what it is for

import base64
import json
import os
import random
import sys
import time

import wit_world.exports as exports
from componentize_py_types import Err
from wit_world.imports import files, http, images, kv, log

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


def use_kv(_):
    kv.set("b", "2")
    kv.set("a", "1")
    found = [kv.get("a"), kv.get("none"), kv.list("")]
    return [*found, kv.delete("a"), kv.delete("a")]


def use_files(_):
    files.write_text("/scratch/a/one.txt", "ähm")
    files.write_bytes("/scratch/two.bin", base64.b64encode(bytes(range(256))).decode())
    listed = [[entry.name, entry.kind.name, entry.size] for entry in files.list("/scratch")]
    data = base64.b64decode(files.read_bytes("/scratch/two.bin"))
    files.remove("/scratch/a")
    return [len(data), listed]


def use_images(data):
    image = images.resize(data, 2, 2, "png")
    return [image.width, image.height, image.format, image.data]


def use_http(url):
    response = http.fetch(http.Request("GET", url, [http.Header("x-test", "1")], "", None, 1000))
    headers = {header.name.lower(): header.value for header in response.headers}
    body = base64.b64decode(response.body).decode()
    return [response.status, response.url, headers.get("x-answer"), body]


def use_log(_):
    for level in log.Level:
        log.emit(level, "said at " + level.name)


def send_too_much(count):
    log.emit(log.Level.INFO, "x" * count)


class _Raw:
    def __init__(self, value):
        self.value = value


class Guest(exports.Guest):
    def invoke(self, method, input):
        result = globals()[method](json.loads(input))
        return result.value if isinstance(result, _Raw) else json.dumps(result)
