"""What a start costs, from the plan to the dead cell, beside its peers. Compare, don't assert."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from oops_launcher import Launcher, plan, wait_until

ROUNDS = 100
PEERS = ["bare", "bwrap"] if shutil.which("bwrap") else ["bare"]


@pytest.fixture(scope="module")
def static_program(tmp_path_factory) -> Path:
    """A folder with a static program that does nothing: what is left is the start itself."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("static")
    source = folder / "true.c"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run([compiler, "-O2", "-static", "-o", folder / "true", source], check=True)
    for path in (folder, *list(folder.parents)[:2]):
        path.chmod(0o755)
    return folder


def static_plan(folder: Path):
    """The static program with every control on."""
    return plan(
        program="/tool/true",
        mounts=[{"kind": "bind", "source": str(folder), "at": "/tool"}],
        landlock=[{"at": "/tool", "access": ["read", "execute"]}],
    )


@pytest.fixture(params=[3, 0], ids=["parked", "cold"])
def started(request):
    """A launcher with parked cells, and one that makes each cell on the way."""
    with Launcher(pool=request.param) as launcher:
        if launcher.hello["missing"]:
            pytest.skip(f"this machine lacks {launcher.hello['missing']}")
        yield launcher


def test_cell_from_plan_to_exit(benchmark, started, static_program):
    null = os.open("/dev/null", os.O_RDWR)
    made = static_plan(static_program)

    def pause() -> None:
        # Parked cells are made in quiet moments, of which a benchmark has none.
        wait_until(lambda: False, 0.03)

    def once() -> None:
        answer = started.start(made, [null] * 3)
        os.close(started.pidfds.pop(answer["id"]))
        assert started.receive()["exit"] == 0

    benchmark.pedantic(once, setup=pause, rounds=ROUNDS)
    os.close(null)


@pytest.mark.parametrize("peer", PEERS)
def test_peer(benchmark, static_program, peer):
    """The same program with no sandbox, and with the usual one (fewer controls, no limits)."""
    argv = [str(static_program / "true")]
    if peer == "bwrap":
        binds = ["--ro-bind", str(static_program), "/tool", "--proc", "/proc", "--dev", "/dev"]
        argv = [str(shutil.which("bwrap")), "--unshare-all", *binds, "/tool/true"]

    def once() -> None:
        assert os.waitpid(os.posix_spawn(argv[0], argv, {}), 0)[1] == 0

    benchmark.pedantic(once, setup=lambda: wait_until(lambda: False, 0.03) and None, rounds=ROUNDS)
