"""The input of one `toolcell run`, from its options: the JSON text that goes to the method.

Owns the reading of `--input`, `--arg` and `--bytes`, and its bounds; every problem is an error of
usage under the option that it came with. Judges no value: schema and policy are the runtime's.
"""

import base64
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

__all__ = ["MAX_INPUT_BYTES", "call_input"]

MAX_INPUT_BYTES = 64 * 1024 * 1024
"""What is read from a file or standard input; the policy's own limit on messages applies after."""


def call_input(text: str, arguments: Sequence[str] = (), files: Sequence[str] = ()) -> bytes:
    """`text` (JSON, `@FILE` or `-`) with each argument and each file set as a field of it.

    Arguments follow HTTPie: `NAME=TEXT`, `NAME:=JSON`, `NAME=@FILE`, `NAME:=@FILE`. Files are
    `NAME=FILE`, and their bytes become base64. `text` is left as it is where there is neither:
    what is not JSON is the runtime's to refuse. Raises :class:`click.UsageError`.
    """
    raw = _read_input(text)
    if not arguments and not files:
        return raw
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise click.UsageError(
            "--arg and --bytes need an --input that is a JSON object (the default is {})"
        )
    for argument in arguments:
        name, value = _argument(argument)
        fields[name] = value
    for file in files:
        name, equals, path = file.partition("=")
        option = f"--bytes {file}"
        if not (equals and name and path):
            raise click.UsageError(f"{option}: write NAME=FILE")
        fields[name] = base64.b64encode(_read_file(path, option)).decode("ascii")
    return json.dumps(fields).encode()


def _argument(argument: str) -> tuple[str, Any]:
    name, equals, value = argument.partition("=")
    is_json = name.endswith(":")
    name = name.removesuffix(":")
    if not equals or not name:
        raise click.UsageError(
            f"--arg {argument!r:.80}: write NAME=TEXT, NAME:=JSON, NAME=@FILE or NAME:=@FILE"
        )
    option = f"--arg {name}{':' if is_json else ''}={value:.80}"
    if value.startswith("@"):
        try:
            value = _read_file(value[1:], option).decode()
        except UnicodeDecodeError as error:
            raise click.UsageError(
                f"{option}: not UTF-8 text ({error.reason}); --bytes {name}=FILE takes any bytes"
            ) from None
    if not is_json:
        return name, value
    try:
        return name, json.loads(value)
    except ValueError as error:
        raise click.UsageError(
            f"{option}: not JSON ({error}); {name}=TEXT takes text as it is"
        ) from None
    except RecursionError:
        raise click.UsageError(f"{option}: nested too deeply") from None


def _read_input(text: str) -> bytes:
    if text == "-":
        return _bounded(sys.stdin.buffer.read(MAX_INPUT_BYTES + 1), "--input -")
    if text.startswith("@"):
        return _read_file(text[1:], f"--input {text}")
    return _bounded(text.encode("utf-8", "surrogateescape"), "--input")


def _read_file(path: str, option: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return _bounded(file.read(MAX_INPUT_BYTES + 1), option)
    except OSError as error:
        raise click.UsageError(f"{option}: {error.strerror}") from None
    except ValueError:  # a NUL in the path
        raise click.UsageError(f"{option}: not the name of a file") from None


def _bounded(raw: bytes, option: str) -> bytes:
    if len(raw) > MAX_INPUT_BYTES:
        raise click.UsageError(f"{option}: has more than {MAX_INPUT_BYTES} bytes")
    return raw
