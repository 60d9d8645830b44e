"""What a host function raises to end the guest. `toolcell_wasi.faults` maps it.

Apart from these, a host function may raise any `ToolcellError`, which ends the run as it is, and
anything else is our own bug.
"""


class GuestViolation(Exception):
    """The guest broke a rule of an interface. `message` says which."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ForbiddenImport(GuestViolation):
    """The guest called a function that no tool may have. `name` is its full WIT name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the tool called `{name}`, which no tool in this lane may call")
        self.name = name


class GuestExit(Exception):
    """The guest asked to exit. `code` 0 is no success either: it returned no result."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit({code})")
        self.code = code
