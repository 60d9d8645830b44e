"""`fs.*`: files of one run, under quotas."""

from pathlib import Path

import pytest
from broker_runs import Run, envelope, rule_of, run_of

from toolcell.broker import BrokerServices
from toolcell.broker.call import Refusal
from toolcell.broker.files.path import parts_of
from toolcell.broker.files.scratch import MAX_ENTRIES
from toolcell.broker.interface import FileEntry

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/scratch", ()),
        ("/scratch/", ()),
        ("//scratch//a/./b/", ("a", "b")),
        ("/scratch/a/../b", ("b",)),
        ("/scratch/ünï/x y", ("ünï", "x y")),
        ("/scratch/...", ("...",)),
        ("/scratch/a\\b", ("a\\b",)),
    ],
)
def test_path_is_read_as_written(path: str, parts: tuple[str, ...]) -> None:
    assert parts_of(path) == parts


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("", 400),
        ("a", 400),
        ("scratch/a", 400),
        ("./scratch/a", 400),
        ("/scratch/a\0b", 400),
        ("/scratch/a\nb", 400),
        ("/", 403),
        ("/etc/passwd", 403),
        ("/scratchy/a", 403),
        ("/SCRATCH/a", 403),
        ("/scratch/" + "n" * 256, 413),
        ("/scratch/" + "ü" * 128, 413),
        ("/scratch" + "/d" * 17, 413),
    ],
)
def test_path_that_is_not_below_scratch_or_not_bounded_is_refused(path: str, status: int) -> None:
    with pytest.raises(Refusal) as caught:
        parts_of(path)

    assert caught.value.status == status


def test_file_comes_back_as_it_was(services: BrokerServices) -> None:
    with run_of(services) as run:
        run.call("fs.writeText", path="/scratch/a.txt", text="grüße\r\n\0")
        run.call("fs.writeBytes", path="/scratch/b.bin", data=bytes(range(256)))

        assert run.call("fs.readText", path="/scratch/a.txt") == "grüße\r\n\0"
        assert run.call("fs.readBytes", path="/scratch/b.bin") == bytes(range(256))
        assert run.call("fs.readBytes", path="/scratch/a.txt") == "grüße\r\n\0".encode()


def test_writing_replaces_and_makes_folders(services: BrokerServices) -> None:
    with run_of(services) as run:
        run.call("fs.writeText", path="/scratch/a/b/c.txt", text="long old text")
        run.call("fs.writeText", path="/scratch/a/b/c.txt", text="new")

        assert run.call("fs.readText", path="/scratch/a/b/c.txt") == "new"


def test_folder_is_listed_by_name(services: BrokerServices) -> None:
    with run_of(services) as run:
        run.call("fs.writeText", path="/scratch/z.txt", text="12345")
        run.call("fs.writeText", path="/scratch/dir/inner", text="")

        assert run.call("fs.list", path="/scratch") == [
            FileEntry(name="dir", kind="directory", size=0),
            FileEntry(name="z.txt", kind="file", size=5),
        ]
        assert run.call("fs.list", path="/scratch/dir/") == [
            FileEntry(name="inner", kind="file", size=0)
        ]


@pytest.mark.parametrize(
    ("capability", "path", "params", "status"),
    [
        ("fs.readText", "/scratch/none", {}, 404),
        ("fs.readText", "/scratch/dir", {}, 400),
        ("fs.readText", "/scratch", {}, 400),
        ("fs.readText", "/scratch/file/below", {}, 400),
        ("fs.list", "/scratch/none", {}, 404),
        ("fs.list", "/scratch/file", {}, 400),
        ("fs.remove", "/scratch/none", {}, 404),
        ("fs.remove", "/scratch", {}, 400),
        ("fs.writeText", "/scratch", {"text": ""}, 400),
        ("fs.writeText", "/scratch/dir", {"text": ""}, 400),
        ("fs.writeText", "/scratch/file/below", {"text": ""}, 400),
    ],
)
def test_call_that_does_not_fit_what_is_there_is_refused(
    services: BrokerServices, capability: str, path: str, params: dict, status: int
) -> None:
    with run_of(services) as run:
        run.call("fs.writeText", path="/scratch/file", text="")
        run.call("fs.writeText", path="/scratch/dir/file", text="")

        assert run.refused(capability, path=path, **params).status == status


def test_text_that_is_not_utf_8_names_the_other_call(services: BrokerServices) -> None:
    with run_of(services) as run:
        run.call("fs.writeBytes", path="/scratch/a", data=b"ok\xff")

        fault = run.refused("fs.readText", path="/scratch/a")

        assert (fault.status, rule_of(fault)) == (400, "encoding")
        assert "fs.readBytes" in fault.remedy


def test_removing_gives_the_room_back(services: BrokerServices) -> None:
    with run_of(services, scratch_mb=1, max_message_bytes=4 * MIB) as run:
        run.call("fs.writeBytes", path="/scratch/d/e/a", data=bytes(MIB // 2))
        run.call("fs.writeBytes", path="/scratch/d/b", data=bytes(MIB // 2))
        assert run.refused("fs.writeText", path="/scratch/c", text="x").status == 413

        run.call("fs.remove", path="/scratch/d")
        run.call("fs.writeBytes", path="/scratch/c", data=bytes(MIB))
        run.call("fs.remove", path="/scratch/c")

        assert run.call("fs.list", path="/scratch") == []
        run.call("fs.writeBytes", path="/scratch/c", data=bytes(MIB))


def test_bytes_over_scratch_mb_are_refused_and_the_old_file_stays(
    services: BrokerServices,
) -> None:
    with run_of(services, scratch_mb=1, max_message_bytes=4 * MIB) as run:
        run.call("fs.writeText", path="/scratch/a", text="old")

        fault = run.refused("fs.writeBytes", path="/scratch/a", data=bytes(MIB + 1))

        assert (fault.status, rule_of(fault)) == (413, "scratch_mb")
        assert run.call("fs.readText", path="/scratch/a") == "old"


def test_scratch_of_zero_takes_nothing(services: BrokerServices) -> None:
    with run_of(services, scratch_mb=0) as run:
        assert run.refused("fs.writeText", path="/scratch/a", text="x").status == 413


def test_number_of_files_and_folders_is_bounded(services: BrokerServices) -> None:
    with run_of(services) as run:
        scratch_of(run).entries = MAX_ENTRIES - 2
        run.call("fs.writeText", path="/scratch/d/a", text="")  # a folder and a file

        for path in ("/scratch/b", "/scratch/e/c"):
            fault = run.refused("fs.writeText", path=path, text="")
            assert (fault.status, rule_of(fault)) == (429, "files")
        run.call("fs.writeText", path="/scratch/d/a", text="replacing is no growth")
        run.call("fs.remove", path="/scratch/d/a")
        run.call("fs.writeText", path="/scratch/d/b", text="")


def scratch_of(run: Run):
    run.call("fs.list", path="/scratch")
    return run.broker._interfaces["fs"].scratch


def test_file_over_the_message_size_is_refused(services: BrokerServices) -> None:
    with run_of(services) as run:
        (scratch_of(run).path / "big").write_bytes(bytes(3 * MIB))

        fault = run.refused("fs.readBytes", path="/scratch/big")

        assert (fault.status, rule_of(fault)) == (413, "max_message_bytes")


def test_two_runs_share_no_files(services: BrokerServices) -> None:
    with run_of(services) as first, run_of(services) as second:
        first.call("fs.writeText", path="/scratch/a", text="1")

        assert second.refused("fs.readText", path="/scratch/a").status == 404


def test_files_are_gone_when_the_run_is_over(services: BrokerServices, tmp_path: Path) -> None:
    with run_of(services) as run:
        run.call("fs.writeText", path="/scratch/d/a", text="x")
        folder = scratch_of(run).path
        assert folder.stat().st_mode & 0o777 == 0o700

    assert not folder.parent.exists()


def test_files_are_gone_when_the_run_failed(services: BrokerServices) -> None:
    folders = []

    def fails() -> None:
        with run_of(services) as run:
            run.call("fs.writeText", path="/scratch/a", text="x")
            folders.append(scratch_of(run).path.parent)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()

    assert [folder.exists() for folder in folders] == [False]


def test_services_leave_no_folder_behind(tmp_path: Path) -> None:
    services = BrokerServices(scratch_dir=tmp_path / "scratch")
    run = Run(envelope(), services)
    run.call("fs.writeText", path="/scratch/a", text="x")
    run.broker.close()
    services.close()
    services.close()

    assert list((tmp_path / "scratch").iterdir()) == []


def test_lost_scratch_folder_is_told_without_its_place(
    services: BrokerServices, tmp_path: Path
) -> None:
    import shutil

    with run_of(services) as run:
        folder = scratch_of(run).path
        shutil.rmtree(folder.parent)

        fault = run.refused("fs.writeText", path="/scratch/d/a", text="x")

        assert fault.status in {404, 502}
        assert str(tmp_path) not in repr(fault.to_dict())
