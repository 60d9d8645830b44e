"""`@method`: what becomes a method, and what is refused with function and parameter named."""

import pytest

from toolcell_sdk import SchemaError, method
from toolcell_sdk.methods import Registry, collecting


def registry_of(define) -> Registry:
    with collecting() as registry:
        define()
    return registry


def test_a_function_becomes_a_method_and_stays_a_function():
    def define():
        @method
        def greet(name: str, times: int = 1) -> str:
            """Greets.

            At length.
            """
            return name * times

        assert greet("a", 2) == "aa"

    assert registry_of(define).describe() == {
        "greet": {
            "description": "Greets.\n\nAt length.",
            "input": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "times": {"type": "integer", "default": 1},
                },
                "required": ["name"],
                "additionalProperties": False,
            },
            "output": {"type": "string"},
        }
    }


def test_name_and_description_can_be_given():
    def define():
        @method(name="hello", description="Says it.")
        def _anything() -> None: ...

    assert registry_of(define).describe()["hello"]["description"] == "Says it."


def test_hints_may_name_what_is_defined_later():
    with collecting() as registry:
        namespace = {"method": method}
        source = "@method\ndef first(x: 'Later') -> None: ...\nLater = int\n"
        exec(source, namespace)
    assert registry.describe()["first"]["input"]["properties"] == {"x": {"type": "integer"}}


def a_parameter_without_hint():
    @method
    def broken(x) -> None: ...


def no_return_hint():
    @method
    def broken(x: int): ...


def an_unsupported_parameter():
    @method
    def broken(x: complex) -> None: ...


def an_unsupported_result():
    @method
    def broken() -> list[complex]: ...


def a_default_that_does_not_fit():
    @method
    def broken(x: str = 3) -> None: ...


def star_arguments():
    @method
    def broken(*x: int) -> None: ...


def a_positional_argument():
    @method
    def broken(x: int, /) -> None: ...


def a_name_that_is_nowhere():
    @method
    def broken(x: "Nowhere") -> None: ...  # noqa: F821


@pytest.mark.parametrize(
    ("define", "words"),
    [
        (a_parameter_without_hint, r"broken\(\), parameter `x`: the type hint is missing"),
        (no_return_hint, r"broken\(\): the return type is missing"),
        (an_unsupported_parameter, r"broken\(\), parameter `x`: the type `complex`"),
        (an_unsupported_result, r"broken\(\), return type: the type `complex`"),
        (a_default_that_does_not_fit, r"broken\(\): the default of `x` does not fit"),
        (star_arguments, r"broken\(\), parameter `x`: arguments come by name"),
        (a_positional_argument, r"broken\(\), parameter `x`: arguments come by name"),
        (a_name_that_is_nowhere, r"broken\(\): a type hint names 'Nowhere'"),
    ],
)
def test_a_function_that_can_be_no_method_is_named(define, words):
    with pytest.raises(SchemaError, match=words):
        registry_of(define).describe()


@pytest.mark.parametrize("name", ["Upper", "_hidden", "9", "a-b", "a" * 65, ""])
def test_a_name_that_a_manifest_can_not_hold_is_refused(name):
    with pytest.raises(SchemaError, match="can't be a method's name"):
        Registry().add(lambda: None, name, "")


def test_a_name_is_taken_once():
    def define():
        @method
        def twice() -> None: ...

        method(twice)

    with pytest.raises(SchemaError, match=r"`twice` is defined twice; first in .*test_methods\.py"):
        registry_of(define)


def test_coroutines_and_generators_are_refused_where_they_are_defined():
    async def waits() -> None: ...

    def yields():
        yield 1

    for function in (waits, yields):
        with pytest.raises(SchemaError, match="write a plain `def`"):
            method(function)
