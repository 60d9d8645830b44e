"""What a component imports, against what it may: the manifest's request, the grant, our host.

Owns the decision for every import, made when an artifact is prepared (`resolve_imports`) and when
an envelope is admitted (`check_grant`): before anything of the component has run. Decides by name
and by type, never by what a component says of itself.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from toolcell.artifact.manifest import Manifest
from toolcell.artifact.shown import shown
from toolcell.errors import ArtifactRejected, PolicyDenied
from toolcell.policy.envelope import PolicyEnvelope
from toolcell_wasi.cell import Cell
from toolcell_wasi.cell.handles import KINDS
from toolcell_wasi.cell.violations import ForbiddenImport
from toolcell_wasi.engine import FunctionType, HostFunction, ResourceImport
from toolcell_wasi.engine.component import Interfaces
from toolcell_wasi.engine.wit import signature
from toolcell_wasi.host import SERVED, capabilities

_WASI_VERSION = re.compile(r"0\.2\.\d{1,4}")


@dataclass(frozen=True, slots=True)
class ResolvedImports:
    """How each import is served.

    `definitions` and `resource_kinds` are the linker's. `interfaces` maps each imported capability
    interface to those of its capabilities that the manifest requests.
    """

    definitions: Mapping[str, Mapping[str, HostFunction]]
    resource_kinds: Mapping[str, int]
    interfaces: Mapping[str, tuple[str, ...]]


def resolve_imports(imports: Interfaces, manifest: Manifest) -> ResolvedImports:
    """Finds what serves each import. :class:`ArtifactRejected` names one that nothing may serve."""
    definitions: dict[str, dict[str, HostFunction]] = {}
    interfaces: dict[str, tuple[str, ...]] = {}
    for name, members in imports.items():
        base, _, version = name.partition("@")
        if base.startswith("wasi:") and _WASI_VERSION.fullmatch(version):
            served = SERVED.get(base, {})
        elif base.startswith(f"{capabilities.PACKAGE}/"):
            served = _capability_functions(name, base, version, manifest, interfaces)
        else:
            _reject_import(name)
        functions = {k: m for k, m in members.items() if isinstance(m, FunctionType)}
        definitions[name] = {
            member: _serve(name, member, declared, served.get(member))
            for member, declared in functions.items()
        }
    return ResolvedImports(definitions, _resource_kinds(imports), interfaces)


def check_grant(interfaces: Mapping[str, tuple[str, ...]], envelope: PolicyEnvelope) -> None:
    """Refuses an envelope that grants nothing of an imported interface.

    Where at least one function of an interface is granted the component may be linked; a call of
    one of the others is refused by the broker.
    """
    for interface, names in interfaces.items():
        if not any(envelope.grants(name) for name in names):
            listed = ", ".join(f"`{name}`" for name in names)
            raise PolicyDenied(
                f"the tool imports `{interface}`, and the policy grants none of {listed}",
                remedy=f"grant `{names[0]}` in allowed_host_apis"
                f"{_switch_for(names[0])}, or use a tool that does not need it",
                details={"capability": names[0], "interface": interface},
            )


def named_interfaces(names: Iterable[str], manifest: Manifest) -> dict[str, tuple[str, ...]]:
    """Of the imports `names`, the capability interfaces, with what the manifest requests of each.

    For :func:`check_grant` ahead of compiling; one that the manifest does not request is left out,
    :func:`resolve_imports` refuses it.
    """
    found = {}
    for name in names:
        interface = name.partition("@")[0].removeprefix(f"{capabilities.PACKAGE}/")
        requested = _requested(interface, manifest)
        if requested:
            found[name] = requested
    return found


def _requested(interface: str, manifest: Manifest) -> tuple[str, ...]:
    """The capabilities of `interface` that the manifest requests."""
    served = {each.name for each in capabilities.INTERFACES.get(interface, {}).values()}
    return tuple(name for name in manifest.capabilities if name in served)


def _switch_for(capability: str) -> str:
    if capability == "http.fetch":
        return " and set allow_network_egress"
    return " and set allow_file_io" if capability.startswith("fs.") else ""


def _capability_functions(
    name: str,
    base: str,
    version: str,
    manifest: Manifest,
    interfaces: dict[str, tuple[str, ...]],
) -> Mapping[str, HostFunction]:
    interface = base.removeprefix(f"{capabilities.PACKAGE}/")
    if version != capabilities.PACKAGE_VERSION:
        _reject_import(name)
    if interface == "types":
        return {}
    known = capabilities.INTERFACES.get(interface)
    if known is None:
        _reject_import(name)
    names = _requested(interface, manifest)
    if not names:
        listed = ", ".join(sorted(capability.name for capability in known.values()))
        raise ArtifactRejected(
            f"the component imports `{name}`, and its manifest requests none of {listed}",
            remedy="build the artifact again: the manifest must name what the component imports",
            details={"import": name},
        )
    interfaces[name] = names
    return {member: capability.host_function() for member, capability in known.items()}


def _serve(
    interface: str, member: str, declared: FunctionType, served: HostFunction | None
) -> HostFunction:
    name = f"{interface}#{member}"
    if served is None:
        if interface.startswith("wasi:"):
            return _trap(shown(name))
        _reject_import(name)
    if not declared.matches(served.params or (), served.result):
        raise ArtifactRejected(
            f"the component imports `{name}` with a type that is not "
            f"`{signature(served.params or (), served.result)}`",
            remedy="build it against the WIT of WASI 0.2 and of toolcell_sdk",
            details={"import": name},
        )
    return served


def _trap(name: str) -> HostFunction:
    def call(_cell: Cell) -> NoReturn:
        raise ForbiddenImport(name)

    return HostFunction(call, None)


def _resource_kinds(imports: Interfaces) -> dict[str, int]:
    """Numbers for each imported resource; those that only traps use get numbers of their own."""
    kinds = dict(KINDS)
    for name in _resources(imports):
        kinds.setdefault(name, len(kinds) + 1)
    return kinds


def _resources(imports: Interfaces) -> Iterator[str]:
    for members in imports.values():
        yield from (name for name, member in members.items() if isinstance(member, ResourceImport))


def _reject_import(name: str) -> NoReturn:
    name = shown(name)  # a publisher chose it: up to 100,000 characters, line feeds among them
    raise ArtifactRejected(
        f"the component imports `{name}`, which this lane does not have",
        remedy="a tool may import WASI 0.2 and the capability interfaces of toolcell:tool@"
        f"{capabilities.PACKAGE_VERSION}",
        details={"import": name},
    )
