"""Linkers: which host function serves which import of a component.

Owns the two C callbacks through which every host call comes in. Nothing is defined per call: a
linker is made once per component, and the callback finds the running store by the address of
its context. No exception may leave a callback, so each is kept in its own store and raised again
when wasmtime has returned.
"""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import wasmtime
from wasmtime import component as wc

from toolcell_wasi.engine import capi
from toolcell_wasi.engine.component import Component, ResourceImport, address_of
from toolcell_wasi.engine.errors import EngineFailure, raise_failure
from toolcell_wasi.engine.signals import unguarded
from toolcell_wasi.engine.wit import WitType

if TYPE_CHECKING:
    from toolcell_wasi.engine.store import Store

RUNNING: "dict[int, Store]" = {}
"""Store by the address of its context, from its first breath to its close."""


@dataclass(frozen=True, slots=True)
class HostFunction:
    """What serves one import.

    `call(guest, *arguments)` gets the store's `guest` object and the lifted arguments, and returns
    what `result` lowers. `params` None lifts nothing: for functions that only refuse.
    `max_bytes` bounds strings and bytes of the arguments; None is the guest's
    `max_argument_bytes`. `too_large(allowed, used)` makes the result where they are over it;
    without it that ends the guest.
    """

    call: Callable[..., Any]
    params: tuple[WitType, ...] | None = ()
    result: WitType | None = None
    max_bytes: int | None = None
    too_large: Callable[[int, int], Any] | None = None


@unguarded
def _on_host_call(
    index: int,
    context: int,
    _type: int,
    arguments: int,
    count: int,
    results: int,
    _result_count: int,
) -> int:
    return RUNNING[context].serve(index, arguments, count, results)


@unguarded
def _on_resource_drop(_data: int, context: int, number: int) -> int:
    return RUNNING[context].drop_resource(number)


_HOST_CALL = capi.FUNC_CALLBACK(_on_host_call)
_RESOURCE_DROP = capi.DROP_CALLBACK(_on_resource_drop)


class Linker:
    """The definitions for one component. Immutable once made; used by many threads at once.

    `definitions`: interface name -> function name -> what serves it. `resource_kinds`: resource
    name -> its number; the same name is the same type in every interface.
    """

    def __init__(
        self,
        component: Component,
        definitions: Mapping[str, Mapping[str, HostFunction]],
        resource_kinds: Mapping[str, int],
    ) -> None:
        self.component = component
        self.functions: list[HostFunction] = []
        self._raw = wc.Linker(component.engine.raw)
        self._types = {name: wc.ResourceType.host(kind) for name, kind in resource_kinds.items()}
        try:
            with self._raw.root() as root:
                for interface, members in component.imports().items():
                    self._define(root, interface, members, definitions.get(interface, {}))
        except wasmtime.WasmtimeError as error:
            raise EngineFailure(str(error)) from None
        self.address = address_of(self._raw)

    def _define(
        self,
        root: wc.LinkerInstance,
        interface: str,
        members: Mapping[str, Any],
        functions: Mapping[str, HostFunction],
    ) -> None:
        with root.add_instance(interface) as instance:
            at = address_of(instance)
            for name, member in members.items():
                if isinstance(member, ResourceImport):
                    self._add_resource(at, name)
                else:
                    self._add_function(at, name, functions[name])

    def _add_function(self, instance: int, name: str, function: HostFunction) -> None:
        index = len(self.functions)
        self.functions.append(function)
        raw = name.encode()
        raise_failure(
            capi.linker_instance_add_func(
                instance, raw, len(raw), _HOST_CALL, index, ctypes.c_void_p()
            )
        )

    def _add_resource(self, instance: int, name: str) -> None:
        raw = name.encode()
        raise_failure(
            capi.linker_instance_add_resource(
                instance,
                raw,
                len(raw),
                address_of(self._types[name]),
                _RESOURCE_DROP,
                0,
                ctypes.c_void_p(),
            )
        )

    def close(self) -> None:
        """Frees the linker. No store that uses it may be running."""
        self._raw.close()
