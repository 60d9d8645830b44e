"""The world of one tool holds what it declares, to the single function."""

import pytest

from toolcell_sdk.wit import CAPABILITIES, narrowed, package_text, write_world


def functions_in(package: str) -> set[str]:
    """Names of the functions of the capability interfaces."""
    lines = [line.strip() for line in package.splitlines() if ": func(" in line]
    return {line.partition(":")[0].removeprefix("%") for line in lines} - {"invoke"}


def test_every_capability_is_a_function_of_the_package():
    assert functions_in(package_text()) == {function for _i, function in CAPABILITIES.values()}
    assert narrowed(package_text(), set(CAPABILITIES.values())).split() == package_text().split()


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_tool_gets_the_function_that_it_declares_and_no_other(tmp_path, capability):
    write_world(tmp_path / "wit", [capability])
    interface, function = CAPABILITIES[capability]
    assert functions_in((tmp_path / "wit/deps/toolcell.wit").read_text()) == {function}
    world = (tmp_path / "wit/world.wit").read_text()
    assert f"import toolcell:tool/{interface}@0.1.0;" in world
    assert world.count("import ") == 1


def test_a_tool_without_capabilities_imports_none(tmp_path):
    write_world(tmp_path / "wit", [])
    assert "import " not in (tmp_path / "wit/world.wit").read_text()
    assert functions_in((tmp_path / "wit/deps/toolcell.wit").read_text()) == set()
