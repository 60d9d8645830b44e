"""Which envelopes an artifact can run under in this lane, and why not the others.

Owns the refusals that need no cell: they are the same before the artifact is prepared and after.
Nothing is narrowed or left out silently; what can't be given is named.
"""

from toolcell.artifact.manifest import Manifest
from toolcell.errors import LaneUnavailable, PolicyDenied
from toolcell.policy.envelope import FILE_CAPABILITIES, PolicyEnvelope
from toolcell_oops.program import PlainProgram, Program

__all__ = ["check_demands"]


def check_demands(manifest: Manifest, program: Program, envelope: PolicyEnvelope) -> None:
    """Raises :class:`LaneUnavailable` for what this lane can't enforce or give, and
    :class:`PolicyDenied` for a capability of which nothing is granted.
    """
    needs = manifest.sandbox
    # A worker has `http.fetch`; a program that knows nothing of toolcell has no way out.
    https = needs.network == "off" or not isinstance(program, PlainProgram)
    for demand, given in (
        (f"filesystem={envelope.filesystem}", envelope.filesystem != "host"),
        (f"network={envelope.network}", envelope.network != "full"),
        (f"network={needs.network}", https),
        ("deterministic", not envelope.deterministic),
    ):
        if not given:
            raise LaneUnavailable(
                f"{demand} is demanded, which the oops lane does not give to this tool",
                remedy="run it in a lane that does, or do without it",
                details={"feature": demand},
            )
    for limit in ("max_processes", "max_open_files"):
        if not getattr(envelope, limit):
            raise PolicyDenied(
                f"`{limit}` is 0, so no program can run",
                remedy=f"raise `{limit}` in the policy",
                details={"grant": limit},
            )
    _check_grant(manifest, envelope)


def _check_grant(manifest: Manifest, envelope: PolicyEnvelope) -> None:
    """As in the wasi lane: of each interface that the manifest names, something is granted."""
    interfaces: dict[str, list[str]] = {}
    for name in manifest.capabilities:
        interfaces.setdefault(name.partition(".")[0], []).append(name)
    for interface, names in interfaces.items():
        if not any(envelope.grants(name) for name in names):
            listed = ", ".join(f"`{name}`" for name in names)
            switch = " and set allow_file_io" if names[0] in FILE_CAPABILITIES else ""
            if names[0] == "http.fetch":
                switch = " and set allow_network_egress"
            raise PolicyDenied(
                f"the tool asks for `{interface}`, and the policy grants none of {listed}",
                remedy=f"grant `{names[0]}` in allowed_host_apis{switch}, or use a tool that does "
                "not need it",
                details={"capability": names[0], "interface": interface},
            )
