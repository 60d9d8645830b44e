"""Profiles: read strictly, compiled truly, and tried against the kernel."""

import errno
import json
import signal

import pytest
from oops_filters import errnos_under

from toolcell.errors import ConfigError
from toolcell_oops.seccomp import compile_profile, load_profile
from toolcell_oops.seccomp.compiler import _NEWER, _library
from toolcell_oops.seccomp.profile import BUILT_IN

# x86-64 numbers.
GETPPID, MOUNT, CLONE, CLONE3, UNSHARE, IOCTL, SOCKET = 110, 165, 56, 435, 272, 16, 41
IO_URING_SETUP, KEYCTL, PTRACE, BPF, PRCTL, PERSONALITY = 425, 250, 101, 321, 157, 135
X32 = 0x40000000
TIOCSTI, TCGETS = 0x5412, 0x5401
HIGH = 1 << 32
NEWUSER, SIGCHLD = 0x10000000, 17
AF_UNIX, AF_INET, AF_NETLINK, AF_VSOCK = 1, 2, 16, 40


@pytest.fixture(scope="module")
def filters():
    return {name: compile_profile(load_profile(name)) for name in BUILT_IN}


def profile_in(tmp_path, **document):
    path = tmp_path / "p.json"
    path.write_text(json.dumps(document))
    return load_profile(str(path))


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_name_of_our_profiles_is_one_that_somebody_knows(name):
    resolve = _library().resolve_syscall
    for rule in load_profile(name).syscalls:
        for call in rule.names:
            assert resolve(0, call) != -1 or call in _NEWER, call


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_reaches_past_a_cell_is_refused(filters, name):
    calls = [
        (MOUNT, 0, 0, 0, 0, 0),
        (UNSHARE, NEWUSER),
        (CLONE, NEWUSER | SIGCHLD, 0, 0, 0, 0),
        (KEYCTL, 0, 0),
        (PTRACE, 0, 0, 0, 0),
        (BPF, 0, 0, 0),
        (PERSONALITY, 0x0004000),
        (SOCKET, AF_NETLINK, 3, 0),
        (SOCKET, AF_VSOCK, 1, 0),
        (SOCKET, AF_VSOCK | HIGH, 1, 0),
    ]
    found, status = errnos_under(filters[name], *calls)
    assert found == [errno.EPERM] * len(calls)
    assert status == 0


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_libc_replaces_is_not_there(filters, name):
    found, _ = errnos_under(filters[name], (CLONE3, 0, 0), (IO_URING_SETUP, 1, 0))
    assert found == [errno.ENOSYS, errno.ENOSYS]


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("request_word", [TIOCSTI, TIOCSTI | HIGH, TIOCSTI | 7 << 40])
def test_typing_into_a_terminal_is_refused_whatever_the_upper_half_says(
    filters, name, request_word
):
    found, _ = errnos_under(filters[name], (IOCTL, 0, request_word, 0))
    assert found == [errno.EPERM]


@pytest.mark.parametrize("name", BUILT_IN)
def test_another_system_call_table_ends_the_process(filters, name):
    found, status = errnos_under(filters[name], (GETPPID,), (X32 | GETPPID,), (GETPPID,))
    assert found == [0]
    assert status == -signal.SIGSYS


def test_the_strict_profile_refuses_what_it_does_not_name(filters):
    unknown = 999
    calls = [(SOCKET, AF_INET, 1, 0), (SOCKET, AF_UNIX, 1, 0), (unknown,), (PRCTL, 4, 1, 0, 0, 0)]
    assert errnos_under(filters["strict"], *calls)[0] == [errno.EPERM] * 4
    assert errnos_under(filters["baseline"], *calls)[0] == [0, 0, errno.ENOSYS, 0]


def test_a_docker_profile_with_its_additions_compiles(tmp_path, filters):
    profile = profile_in(
        tmp_path,
        defaultAction="SCMP_ACT_ALLOW",
        defaultErrnoRet=1,
        archMap=[{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]}],
        syscalls=[
            {"names": ["getppid"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77, "args": None},
            {
                "names": ["mount"],
                "action": "SCMP_ACT_KILL",
                "includes": {"caps": ["CAP_SYS_ADMIN"]},
            },
            {
                "names": ["keyctl"],
                "action": "SCMP_ACT_ERRNO",
                "errnoRet": 78,
                "includes": {"minKernel": "4.8"},
                "excludes": {"caps": ["CAP_SYS_ADMIN"], "arches": ["s390x"]},
            },
        ],
    )
    found, status = errnos_under(
        compile_profile(profile), (GETPPID,), (KEYCTL, 0, 0), (MOUNT, 0, 0, 0, 0, 0)
    )
    assert found[:2] == [77, 78]
    assert found[2] != 0
    assert status == 0


def test_several_conditions_on_one_argument_are_alternatives(tmp_path):
    condition = {"index": 0, "op": "SCMP_CMP_EQ"}
    profile = profile_in(
        tmp_path,
        defaultAction="SCMP_ACT_ALLOW",
        syscalls=[
            {
                "names": ["socket"],
                "action": "SCMP_ACT_ERRNO",
                "errnoRet": 99,
                "args": [{**condition, "value": AF_INET}, {**condition, "value": AF_NETLINK}],
            }
        ],
    )
    calls = [(SOCKET, family, 1, 0) for family in (AF_INET, AF_UNIX)]
    assert errnos_under(compile_profile(profile), *calls)[0] == [99, 0]


@pytest.mark.parametrize(
    ("document", "word"),
    [
        ({"syscalls": []}, "defaultAction"),
        ({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}, "allows everything"),
        ({"defaultAction": "SCMP_ACT_ALLOW"}, "allows everything"),
        ({"defaultAction": "SCMP_ACT_NOTIFY"}, "SCMP_ACT_NOTIFY"),
        ({"defaultAction": "SCMP_ACT_ERRNO", "more": 1}, "more"),
        ({"defaultAction": "SCMP_ACT_ERRNO", "flags": ["SECCOMP_FILTER_FLAG_LOG"]}, "flag"),
    ],
)
def test_a_profile_that_can_t_be_kept_is_refused(tmp_path, document, word):
    with pytest.raises(ConfigError, match=word):
        profile_in(tmp_path, **document)


def test_a_deny_list_with_a_name_that_nobody_knows_is_refused(tmp_path):
    profile = profile_in(
        tmp_path,
        defaultAction="SCMP_ACT_ALLOW",
        syscalls=[{"names": ["mont"], "action": "SCMP_ACT_ERRNO"}],
    )
    with pytest.raises(ConfigError, match="mont"):
        compile_profile(profile)


@pytest.mark.parametrize("name", ["nope", "/no/such/file.json", "../strict"])
def test_a_profile_that_is_not_there_is_named(name):
    with pytest.raises(ConfigError):
        load_profile(name)


def test_a_digest_tells_profiles_apart():
    assert load_profile("strict").digest() != load_profile("baseline").digest()
    assert load_profile("strict").digest() == load_profile("strict").digest()
