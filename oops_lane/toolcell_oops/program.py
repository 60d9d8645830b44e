"""The entry point of an oops artifact: a small JSON document that says how the program is run.

Owns its model (`toolcell.program/1`) and, for a plain program, the way from a method's input to
argv and stdin and from stdout to a result. The document is a file of the artifact like any other,
so the publisher's signature covers it. Runs nothing.

A plain program needs nothing of toolcell: Debian's `jq` becomes a tool by such a document.
"""

import re
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from toolcell.artifact.manifest import FileName, Manifest, MethodName
from toolcell.artifact.shown import shown
from toolcell.artifact.strict_json import NotStrictJson, decode_json
from toolcell.errors import ArtifactRejected, InvalidInput, Status, ToolFault

__all__ = ["MAX_PROGRAM_BYTES", "PlainMethod", "PlainProgram", "Program", "WorkerProgram"]

PROGRAM_SCHEMA: Final = "toolcell.program/1"
MAX_PROGRAM_BYTES = 64 * 1024
MAX_ARGUMENT_BYTES = 64 * 1024
"""One argument, with what was put into it. Linux admits 128 KiB (MAX_ARG_STRLEN)."""

Argument = Annotated[str, Meta(max_length=4096, pattern=r"^[^\x00]*\Z")]
EnvironmentName = Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]*\Z", max_length=64)]
BaseName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]*\Z", max_length=64)]
Module = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z", max_length=64)]

_PLACE = re.compile(r"\{([a-zA-Z_][a-zA-Z0-9_]*)\}")


class PlainMethod(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one method becomes a command line.

    `{name}` in an argument stands for the field `name` of the input: text as it is, a number or a
    truth as JSON. An argument that is a place as a whole is left out where the field is absent,
    and refused where its text begins with `-`: it would be an option. `stdin` names the field
    whose JSON goes in (`""`: none, `"*"`: the whole input); with `stdin_form = "text"` it must be
    a string and goes in as it is. `stdout`: `json` is one JSON value, `json-lines` a list of the
    values that are written one per line, `text` a string. `exit_codes` are those of a success.
    """

    arguments: Annotated[tuple[Argument, ...], Meta(max_length=256)] = ()
    stdin: Annotated[str, Meta(max_length=64)] = ""
    stdin_form: Literal["json", "text"] = "json"
    stdout: Literal["json", "json-lines", "text"] = "json"
    exit_codes: Annotated[tuple[Annotated[int, Meta(ge=0, le=255)], ...], Meta(max_length=16)] = (
        0,
    )


class PlainProgram(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind", tag="plain"
):
    """A program that knows nothing of toolcell: argv and stdin in, stdout out.

    `program` is a file of the artifact; `base` the tree that it runs on (`empty` for one that is
    linked statically, `native` for the C library). `environment` is all the environment there is.
    """

    schema: Literal["toolcell.program/1"] = PROGRAM_SCHEMA
    program: FileName
    methods: Annotated[dict[MethodName, PlainMethod], Meta(min_length=1, max_length=256)]
    base: BaseName = "native"
    environment: Annotated[dict[EnvironmentName, Argument], Meta(max_length=64)] = {}

    def command(self, method: str, value: Any) -> tuple[list[str], bytes]:
        """argv without the program itself, and stdin, for the input `value` of `method`.

        Raises :class:`InvalidInput` (422) for a value that can't be an argument.
        """
        how = self.methods[method]
        fields = value if isinstance(value, dict) else {}
        arguments = [
            filled
            for template in how.arguments
            if (filled := _filled(template, fields)) is not None
        ]
        return arguments, _stdin(how, value, fields)

    def result(self, method: str, stdout: bytes) -> bytes:
        """The result's JSON text. Raises :class:`ToolFault` for output of another form."""
        form = self.methods[method].stdout
        try:
            if form == "text":
                return msgspec.json.encode(stdout.decode("utf-8"))
            if form == "json-lines":
                return b"[" + b",".join(_json_lines(stdout)) + b"]"
            decode_json(stdout)
        except UnicodeDecodeError:
            raise ToolFault("the tool's output is not UTF-8") from None
        except NotStrictJson as error:
            raise ToolFault(f"the tool's output is not JSON: {error}") from None
        return stdout.strip()


class WorkerProgram(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind", tag="worker"
):
    """A program that speaks the worker protocol on descriptor 3.

    Either `module`, a Python module of the artifact's `app/` that the SDK's worker serves on the
    base `python`, or `program` with its fixed `arguments`, in any language.
    """

    schema: Literal["toolcell.program/1"] = PROGRAM_SCHEMA
    module: Module = ""
    program: FileName | None = None
    arguments: Annotated[tuple[Argument, ...], Meta(max_length=256)] = ()
    base: BaseName = "python"
    environment: Annotated[dict[EnvironmentName, Argument], Meta(max_length=64)] = {}

    def __post_init__(self) -> None:
        if bool(self.module) == bool(self.program):
            raise ValueError("a worker has either `module` or `program`")


Program = PlainProgram | WorkerProgram

_DECODER = msgspec.json.Decoder(Program)


def decode_program(raw: bytes, manifest: Manifest) -> Program:
    """The entry point in `raw`. Raises :class:`ArtifactRejected` where it does not fit."""
    if len(raw) > MAX_PROGRAM_BYTES:
        raise _rejected(f"has {len(raw)} bytes; the limit is {MAX_PROGRAM_BYTES}", status=413)
    try:
        decode_json(raw)
        program: Program = _DECODER.decode(raw)
    except (NotStrictJson, msgspec.MsgspecError, ValueError) as error:
        raise _rejected(f"is not valid: {shown(str(error))}") from None
    if program.program is not None and program.program not in manifest.files:
        raise _rejected(f"names `{program.program}`, which is not among the files")
    if isinstance(program, PlainProgram):
        known, described = set(manifest.methods), set(program.methods)
        if known != described:
            odd = sorted(known ^ described)[0]
            raise _rejected(f"and the manifest do not have the same methods: `{odd}`")
    elif program.module and not _has_module(program.module, manifest):
        raise _rejected(f"names the module `{program.module}`, which is not in app/")
    return program


def _has_module(module: str, manifest: Manifest) -> bool:
    places = (f"app/{module}.py", f"app/{module}/__init__.py")
    return any(place in manifest.files for place in places)


def _rejected(what: str, status: int = Status.MALFORMED) -> ArtifactRejected:
    return ArtifactRejected(
        f"the entry point {what}",
        remedy=f"write it as `{PROGRAM_SCHEMA}`, see docs/oops.md",
        status=status,
        details={"reason": "entry_point"},
    )


def _filled(template: str, fields: dict[str, Any]) -> str | None:
    """`template` with its places filled; None where it is one place whose field is absent."""
    whole = _PLACE.fullmatch(template)
    if whole is not None:
        if fields.get(whole[1]) is None:
            return None
        text = _text_of(whole[1], fields)
        if text.startswith("-"):
            raise InvalidInput(
                f"`{whole[1]}` begins with `-`, so the program would take it for an option",
                remedy="write it otherwise (a filter in brackets, a number with a 0 before it)",
            )
    else:
        text = _PLACE.sub(lambda place: _text_of(place[1], fields), template)
    if len(text.encode()) > MAX_ARGUMENT_BYTES:
        raise InvalidInput(
            f"an argument of {len(text.encode())} bytes; the limit is {MAX_ARGUMENT_BYTES}",
            status=Status.TOO_LARGE,
        )
    return text


def _text_of(name: str, fields: dict[str, Any]) -> str:
    value = fields.get(name)
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if value is None:
        text = ""
    if "\0" in text:
        raise InvalidInput(f"`{name}` holds a NUL character, which no argument can carry")
    return text


def _stdin(how: PlainMethod, value: Any, fields: dict[str, Any]) -> bytes:
    if not how.stdin:
        return b""
    given = value if how.stdin == "*" else fields.get(how.stdin)
    if how.stdin_form == "json":
        return msgspec.json.encode(given)
    if not isinstance(given, str):
        raise InvalidInput(f"`{how.stdin}` must be text: it goes to the program as it is")
    return given.encode()


def _json_lines(stdout: bytes) -> list[bytes]:
    lines = [line for line in stdout.split(b"\n") if line.strip()]
    for line in lines:
        decode_json(line)
    return lines
