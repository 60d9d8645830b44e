"""A seccomp profile as JSON, read strictly.

Owns the form: that of the OCI runtime specification (config-linux.md, "Seccomp"), with Docker's
additions (`archMap`, `includes`, `excludes`, `comment`). What a profile says that can't be kept is
an error, never left out. Compiles nothing.
"""

import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from toolcell.errors import ConfigError

__all__ = ["BUILT_IN", "Condition", "Rule", "SeccompProfile", "load_profile"]

BUILT_IN = ("baseline", "strict")
MAX_PROFILE_BYTES = 1024 * 1024

Action = Literal[
    "SCMP_ACT_ALLOW",
    "SCMP_ACT_ERRNO",
    "SCMP_ACT_KILL",
    "SCMP_ACT_KILL_PROCESS",
    "SCMP_ACT_KILL_THREAD",
    "SCMP_ACT_LOG",
    "SCMP_ACT_TRAP",
]
"""Not `TRACE` and `NOTIFY`: there is nobody to trace or to be notified."""

Errno = Annotated[int, Meta(ge=1, le=4095)]
Word = Annotated[int, Meta(ge=0)]


class Condition(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A comparison of one argument. For `MASKED_EQ`, `value` is the mask, `value_two` the datum."""

    index: Annotated[int, Meta(ge=0, le=5)]
    op: Literal[
        "SCMP_CMP_NE",
        "SCMP_CMP_LT",
        "SCMP_CMP_LE",
        "SCMP_CMP_EQ",
        "SCMP_CMP_GE",
        "SCMP_CMP_GT",
        "SCMP_CMP_MASKED_EQ",
    ]
    value: Word
    value_two: Word = 0

    def __post_init__(self) -> None:
        if max(self.value, self.value_two) >= 2**64:
            raise ValueError("an argument has 64 bits")


class Where(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Docker's condition on a rule: a cell has no capability, so one that needs any is off."""

    caps: tuple[str, ...] = ()
    arches: tuple[str, ...] = ()
    min_kernel: str = ""


class Rule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """An action for system calls by name, where all conditions hold."""

    names: tuple[str, ...] = ()
    name: str = ""
    action: Action
    errno_ret: Errno | None = None
    args: tuple[Condition, ...] | None = ()
    comment: str = ""
    includes: Where = Where()
    excludes: Where = Where()


class SeccompProfile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A profile. Other architectures than this machine's are never admitted, whatever it lists."""

    default_action: Action
    default_errno_ret: Errno | None = None
    architectures: tuple[str, ...] = ()
    arch_map: list[Any] = []
    flags: tuple[str, ...] = ()
    syscalls: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        if self.default_action in ("SCMP_ACT_ALLOW", "SCMP_ACT_LOG") and not self.syscalls:
            raise ValueError("it allows everything: a default of ALLOW needs rules that deny")
        if self.flags:
            raise ValueError(f"the flag {self.flags[0]!a} is not supported")

    def digest(self) -> str:
        """Hex SHA-256 of what it says, comments included."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


def load_profile(name: str) -> SeccompProfile:
    """`baseline`, `strict`, or the profile in the file `name` (an absolute path).

    :class:`ConfigError` for what is not there or not a profile.
    """
    try:
        if name in BUILT_IN:
            raw = (files("toolcell_oops.seccomp") / "profiles" / f"{name}.json").read_bytes()
        elif Path(name).is_absolute():
            raw = Path(name).read_bytes()
        else:
            raise ConfigError(
                f"there is no seccomp profile {name[:100]!a}",
                remedy=f"one of {', '.join(BUILT_IN)}, or an absolute path",
            )
        if len(raw) > MAX_PROFILE_BYTES:
            raise ConfigError(f"the seccomp profile {name} has {len(raw)} bytes; it is too large")
        return msgspec.json.decode(raw, type=SeccompProfile)
    except OSError as error:
        raise ConfigError(f"the seccomp profile {name}: {error.strerror}") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(
            f"the seccomp profile {name} is not valid: {error}",
            remedy="write it as in the OCI runtime specification, config-linux.md",
        ) from None
