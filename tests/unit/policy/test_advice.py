"""Notes of `policy check`: valid, and perhaps not what was meant."""

import pytest

from toolcell.policy.advice import advice
from toolcell.policy.classes import shipped
from toolcell.policy.fields import assemble

HTTP = {"allow_network_egress": True, "allowed_host_apis": ("http.fetch",)}


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ({"allowed_host_apis": ("http.fetch",)}, "`allow_network_egress` is false: refused"),
        ({"network": "outbound-https-only"}, "no egress is allowed: off"),
        (HTTP, "`domains` is empty: it reaches nothing"),
        ({"allow_network_egress": True}, "nothing is granted that could use it"),
        ({"capabilities.http.domains": ("a.org",)}, "`http.fetch` is not granted"),
        (
            {
                **HTTP,
                "capabilities.http.domains": ("a.org",),
                "capabilities.http.schemes": ("http",),
                "capabilities.http.credentials": ("token",),
            },
            "over plain http",
        ),
        (
            {
                **HTTP,
                "capabilities.http.domains": ("a.org",),
                "capabilities.http.addresses": ("169.254.0.0/16",),
            },
            "metadata service",
        ),
        ({"allowed_host_apis": ("fs.list",)}, "`allow_file_io` is false: refused"),
        ({"filesystem": "ephemeral"}, "no file IO is allowed"),
        (
            {"allow_file_io": True, "scratch_mb": 0, "allowed_host_apis": ("fs.list",)},
            "nothing can be written",
        ),
        ({"allow_file_io": True}, "nothing is granted that could use it"),
    ],
)
def test_a_policy_that_says_one_thing_and_does_another_gets_one_note(values, note):
    (found,) = advice(assemble(values))
    assert note in found


def test_the_shipped_classes_need_no_advice_but_for_the_domains_that_an_operator_lists():
    noted = {name: advice(grant.envelope) for name, grant in shipped().grants.items()}
    fetcher = noted.pop("fetcher")
    assert fetcher == ["`http.fetch` is granted, and `domains` is empty: it reaches nothing"]
    assert not any(noted.values())
