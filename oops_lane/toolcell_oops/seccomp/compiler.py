"""From a profile to BPF, with libseccomp: the same compiler that runc and systemd use.

Owns what libseccomp leaves open: names that it does not know, several conditions on one argument,
and the way in from another architecture, which kills. Called once per profile by the lane.
"""

import os
import platform
from types import ModuleType
from typing import Any

from toolcell.errors import ConfigError, LaneUnavailable
from toolcell_oops.seccomp.profile import Condition, Rule, SeccompProfile

__all__ = ["compile_profile"]

EPERM = 1
INSTRUCTION_BYTES = 8
MAX_INSTRUCTIONS = 4096
"""BPF_MAXINSNS, linux/bpf_common.h."""
_BINARY_TREE = 2
"""SCMP_FLTATR_CTL_OPTIMIZE: 60 calls cost 31 µs to load instead of 76."""

_NEWER = {
    "fchmodat2": 452,
    "map_shadow_stack": 453,
    "futex_wake": 454,
    "futex_wait": 455,
    "futex_requeue": 456,
    "statmount": 457,
    "listmount": 458,
    "lsm_get_self_attr": 459,
    "lsm_set_self_attr": 460,
    "lsm_list_modules": 461,
    "mseal": 462,
    "setxattrat": 463,
    "getxattrat": 464,
    "listxattrat": 465,
    "removexattrat": 466,
    "open_tree_attr": 467,
    "file_getattr": 468,
    "file_setattr": 469,
}
"""Newer than libseccomp 2.5.4. One number on every architecture (linux, scripts/syscall.tbl)."""

_UNKNOWN = -1
"""__NR_SCMP_ERROR, seccomp.h."""

_OPERATORS = {"NE": 1, "LT": 2, "LE": 3, "EQ": 4, "GE": 5, "GT": 6, "MASKED_EQ": 7}
_ARCHES = {"x86_64": ("amd64", "x86_64"), "aarch64": ("arm64", "aarch64")}


def compile_profile(profile: SeccompProfile) -> bytes:
    """The filter as `struct sock_filter[]`.

    :class:`ConfigError` for a rule that would deny a call that nobody knows: leaving it out would
    allow it. :class:`LaneUnavailable` where libseccomp is not installed.
    """
    lib = _library()
    default = _action(lib, profile.default_action, profile.default_errno_ret)
    filtering = lib.SyscallFilter(default)
    filtering.set_attr(lib.Attr.CTL_OPTIMIZE, _BINARY_TREE)
    filtering.set_attr(lib.Attr.ACT_BADARCH, lib.KILL_PROCESS)
    permissive = profile.default_action in ("SCMP_ACT_ALLOW", "SCMP_ACT_LOG")
    for rule in profile.syscalls:
        if not _applies(rule):
            continue
        errno = rule.errno_ret if rule.errno_ret is not None else profile.default_errno_ret
        action = _action(lib, rule.action, errno)
        if action == default:
            continue  # libseccomp refuses a rule that says what the default says
        for name in (*rule.names, *((rule.name,) if rule.name else ())):
            number = _number(lib, name)
            if number is None:
                if permissive:
                    raise ConfigError(
                        f"the seccomp profile denies `{name[:64]}`, a call that nobody knows",
                        remedy="correct the name, or install a newer libseccomp",
                    )
                continue  # it stays what the default makes of it: refused
            _add(lib, filtering, action, number, rule.args or ())
    return _exported(filtering)


def _add(
    lib: ModuleType, filtering: Any, action: int, number: int, conditions: tuple[Condition, ...]
) -> None:
    indices = [condition.index for condition in conditions]
    arguments = [
        lib.Arg(
            condition.index,
            _OPERATORS[condition.op.removeprefix("SCMP_CMP_")],
            condition.value,
            condition.value_two,
        )
        for condition in conditions
    ]
    try:
        if len(set(indices)) == len(indices):
            filtering.add_rule(action, number, *arguments)
        else:
            # As runc does: several conditions on one argument are alternatives.
            for argument in arguments:
                filtering.add_rule(action, number, argument)
    except OSError as error:
        raise ConfigError(f"libseccomp refuses a rule of the profile: {error}") from None


def _number(lib: ModuleType, name: str) -> int | None:
    """The call's number here; None where nobody knows such a call."""
    number: int = lib.resolve_syscall(lib.Arch.NATIVE, name)
    if number == _UNKNOWN:
        return _NEWER.get(name)
    # Below that: a call of other architectures, from which nothing gets in. libseccomp takes it.
    return number


def _applies(rule: Rule) -> bool:
    """Whether Docker's conditions hold for a cell: no capability, this machine."""
    here = _ARCHES.get(platform.machine(), (platform.machine(),))
    wanted, unwanted = rule.includes, rule.excludes
    if wanted.caps or (wanted.arches and not set(wanted.arches) & set(here)):
        return False
    if wanted.min_kernel and _kernel() < _version(wanted.min_kernel):
        return False
    if set(unwanted.arches) & set(here):
        return False
    return not (unwanted.min_kernel and _kernel() >= _version(unwanted.min_kernel))


def _kernel() -> tuple[int, ...]:
    return _version(platform.release().partition("-")[0])


def _version(text: str) -> tuple[int, ...]:
    parts = text.split(".")[:2]
    if not all(part.isdigit() for part in parts):
        raise ConfigError(f"{text[:40]!a} is not a kernel version")
    return tuple(map(int, parts))


def _action(lib: ModuleType, name: str, errno: int | None) -> int:
    word = name.removeprefix("SCMP_ACT_")
    if word == "ERRNO":
        return int(lib.ERRNO(EPERM if errno is None else errno))
    return int({"KILL": lib.KILL_PROCESS}.get(word, getattr(lib, word)))


def _exported(filtering: Any) -> bytes:
    descriptor = os.memfd_create("toolcell-seccomp", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "r+b") as file:
        filtering.export_bpf(file)
        file.seek(0)
        bpf = file.read()
    if not 0 < len(bpf) <= MAX_INSTRUCTIONS * INSTRUCTION_BYTES:
        raise ConfigError(
            f"the seccomp profile makes {len(bpf) // INSTRUCTION_BYTES} instructions; the kernel "
            f"takes {MAX_INSTRUCTIONS}"
        )
    return bpf


def _library() -> ModuleType:
    try:
        import pyseccomp  # type: ignore[import-untyped]
    except (ImportError, RuntimeError, OSError) as error:
        raise LaneUnavailable(
            f"seccomp filters can't be made: {error}",
            remedy="install libseccomp (Debian: libseccomp2) and pip install pyseccomp",
            details={"feature": "seccomp"},
        ) from None
    library: ModuleType = pyseccomp
    return library
