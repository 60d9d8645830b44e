"""Guests for tests of the wasi lane: small ones in WebAssembly text, and a hostile Python tool.

A guest in text exports the `toolcell:tool` world around one core function, `invoke`, so that a
test says in a few lines what the guest does. The Python tool is built once and kept in pytest's
cache, for it takes seconds.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

import wasmtime

HERE = Path(__file__).parent
WIT = HERE.parent.parent / "sdk" / "wit" / "toolcell.wit"
GUEST = "toolcell:tool/guest@0.1.0"

_FAULT = '(record (field "status" u16) (field "message" string) (field "detail" string))'
_SIGNATURE = '(param "method" string) (param "input" string)'

_SHELL = """
(component
  {imports}
  (core module $libc
    (memory (export "memory") {pages})
    (global $at (mut i32) (i32.const 4096))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (local $p i32)
      (local.set $p (i32.and (i32.add (global.get $at) (i32.const 7)) (i32.const -8)))
      (global.set $at (i32.add (local.get $p) (local.get 3)))
      (local.get $p)))
  (core instance $libc (instantiate $libc))
  {lowered}
  (core module $m
    (import "libc" "memory" (memory {pages}))
    (import "libc" "realloc" (func $realloc (param i32 i32 i32 i32) (result i32)))
    {core_imports}
    {core}
    ;; The result `ok(string)` at 64: case, address, length.
    (func $ok (param $at i32) (param $length i32) (result i32)
      (i32.store (i32.const 64) (i32.const 0))
      (i32.store (i32.const 68) (local.get $at))
      (i32.store (i32.const 72) (local.get $length))
      (i32.const 64))
    (func (export "invoke")
      (param $method i32) (param $method_length i32) (param $input i32) (param $input_length i32)
      (result i32)
      {body}))
  (core instance $i (instantiate $m (with "libc" (instance $libc)) {core_instances}))
  (type $raw {fault})
  (func $invoke {signature} (result (result string (error $raw)))
    (canon lift (core func $i "invoke")
      (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))
  (component $shim
    (type $record {fault})
    (import "fault" (type $fault (eq $record)))
    (import "invoke" (func $f {signature} (result (result string (error $fault)))))
    (export $out "fault" (type $fault))
    (export "invoke" (func $f) (func {signature} (result (result string (error $out))))))
  (instance $guest (instantiate $shim
    (with "fault" (type $raw)) (with "invoke" (func $invoke))))
  (export "{guest}" (instance $guest)))
"""


def wat_guest(
    body: str,
    *,
    core: str = "",
    imports: str = "",
    lowered: str = "",
    core_imports: str = "",
    core_instances: str = "",
    pages: int = 1,
) -> bytes:
    """A component whose `invoke` is `body`, core instructions that leave the address of a result.

    `$ok(address, length)` makes one; `$input` and `$input_length` are there to echo.
    """
    text = _SHELL.format(
        body=body,
        core=core,
        imports=imports,
        lowered=lowered,
        core_imports=core_imports,
        core_instances=core_instances,
        pages=pages,
        fault=_FAULT,
        signature=_SIGNATURE,
        guest=GUEST,
    )
    return bytes(wasmtime.wat2wasm(text))


ECHO = "(call $ok (local.get $input) (local.get $input_length))"


def importing(interface: str, function: str, kind: str, core_type: str, body: str) -> bytes:
    """A guest that imports one `function` of `interface` (WIT text of its type in `kind`).

    The core function is `$f`, of `core_type`.
    """
    return wat_guest(
        body,
        imports=f'(import "{interface}" (instance $x (export "{function}" (func {kind}))))',
        lowered=f"""(core func $f (canon lower (func $x "{function}")
          (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))""",
        core_imports=f'(import "x" "f" (func $f {core_type}))',
        core_instances='(with "x" (instance (export "f" (func $f))))',
    )


_STREAMS = """
  (import "wasi:io/error@0.2.0" (instance $error (export "error" (type (sub resource)))))
  (alias export $error "error" (type $e))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "output-stream" (type $o (sub resource)))
    (alias outer 1 $e (type $outer)) (export "error" (type $e2 (eq $outer)))
    (type $v (variant (case "last-operation-failed" (own $e2)) (case "closed")))
    (export "stream-error" (type $err (eq $v)))
    (export "[method]output-stream.write" (func (param "self" (borrow $o))
      (param "contents" (list u8)) (result (result (error $err)))))))
  (alias export $streams "output-stream" (type $out))
  (import "wasi:cli/{name}@0.2.0" (instance $std
    (alias outer 1 $out (type $s)) (export "output-stream" (type $s2 (eq $s)))
    (export "get-{name}" (func (result (own $s2))))))
"""


def writing(body: str, *, pages: int = 1, name: str = "stdout") -> bytes:
    """A guest with `$get` (a handle of stdout), `$write` (handle, address, length, result address)
    and `$drop` (handle).
    """
    memory = '(memory (core memory $libc "memory"))'
    return wat_guest(
        body,
        pages=pages,
        imports=_STREAMS.format(name=name),
        lowered=f"""
          (core func $get (canon lower (func $std "get-{name}")))
          (core func $write (canon lower (func $streams "[method]output-stream.write") {memory}
            (realloc (core func $libc "realloc"))))
          (core func $drop (canon resource.drop $out))""",
        core_imports="""
          (import "x" "get" (func $get (result i32)))
          (import "x" "write" (func $write (param i32 i32 i32 i32)))
          (import "x" "drop" (func $drop (param i32)))""",
        core_instances="""(with "x" (instance (export "get" (func $get))
          (export "write" (func $write)) (export "drop" (func $drop))))""",
    )


_TIMERS = """
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $p (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $p))))
    (export "poll" (func (param "in" (list (borrow $p))) (result (list u32))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $s)) (export "pollable" (type $s2 (eq $s)))
    (export "now" (func (result u64)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $s2))))))
"""


def waiting(body: str, *, core: str = "", pages: int = 1) -> bytes:
    """A guest with `$timer` (nanoseconds to handle), `$block` (handle), `$poll` (address, count,
    result address), `$now` and `$drop` (handle).
    """
    return wat_guest(
        body,
        core=core,
        pages=pages,
        imports=_TIMERS,
        lowered="""
          (core func $timer (canon lower (func $clock "subscribe-duration")))
          (core func $now (canon lower (func $clock "now")))
          (core func $block (canon lower (func $poll "[method]pollable.block")))
          (core func $poll (canon lower (func $poll "poll") (memory (core memory $libc "memory"))
            (realloc (core func $libc "realloc"))))
          (core func $drop (canon resource.drop $pollable))""",
        core_imports="""
          (import "x" "timer" (func $timer (param i64) (result i32)))
          (import "x" "now" (func $now (result i64)))
          (import "x" "block" (func $block (param i32)))
          (import "x" "poll" (func $poll (param i32 i32 i32)))
          (import "x" "drop" (func $drop (param i32)))""",
        core_instances="""(with "x" (instance (export "timer" (func $timer))
          (export "now" (func $now)) (export "block" (func $block)) (export "poll" (func $poll))
          (export "drop" (func $drop))))""",
    )


def waiting_for_stdout() -> bytes:
    """A guest that hands its standard output to `pollable.block`."""
    return wat_guest(
        "(call $block (call $get)) unreachable",
        imports=_TIMERS + _STREAMS.format(name="stdout"),
        lowered="""
          (core func $get (canon lower (func $std "get-stdout")))
          (core func $block (canon lower (func $poll "[method]pollable.block")))""",
        core_imports="""
          (import "x" "get" (func $get (result i32)))
          (import "x" "block" (func $block (param i32)))""",
        core_instances="""(with "x" (instance
          (export "get" (func $get)) (export "block" (func $block))))""",
    )


def python_guest(cache: Path) -> bytes:
    """The hostile Python tool, built once for each version of its source."""
    source = (HERE / "hostile_tool.py").read_bytes()
    world = (HERE / "hostile.wit").read_bytes()
    key = hashlib.sha256(source + world + WIT.read_bytes()).hexdigest()[:16]
    built = cache / f"hostile-{key}.wasm"
    if not built.exists():
        _componentize(cache / f"build-{key}", source, world, built)
    return built.read_bytes()


def _componentize(folder: Path, source: bytes, world: bytes, built: Path) -> None:
    deps = folder / "wit" / "deps"
    deps.mkdir(parents=True, exist_ok=True)
    (deps / "toolcell.wit").write_bytes(WIT.read_bytes())
    (folder / "wit" / "world.wit").write_bytes(world)
    (folder / "app.py").write_bytes(source)
    aside = built.with_suffix(".part")
    command = [str(Path(sys.executable).with_name("componentize-py")), "-q", "-d", "wit"]
    command += ["-w", "hostile", "componentize", "app", "-o", str(aside)]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    aside.rename(built)
