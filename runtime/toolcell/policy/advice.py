"""Advice on a policy that is valid, and may still not be what was meant.

Owns the sentences that `toolcell policy check` prints as notes. Refuses nothing.
"""

from ipaddress import ip_address, ip_network

from toolcell.policy.envelope import FILE_CAPABILITIES, PolicyEnvelope

__all__ = ["advice"]

_METADATA = (ip_address("169.254.169.254"), ip_address("fd00:ec2::254"))
"""Where clouds hand out a machine's credentials (AWS, Azure and GCP; AWS over IPv6)."""


def advice(envelope: PolicyEnvelope) -> list[str]:
    """What an operator may want to look at again, one sentence each."""
    return [*_egress(envelope), *_files(envelope)]


def _egress(envelope: PolicyEnvelope) -> list[str]:
    http = envelope.capabilities.http
    listed = "http.fetch" in envelope.allowed_host_apis
    notes = []
    if not envelope.allow_network_egress:
        if listed:
            notes.append("`http.fetch` is listed, and `allow_network_egress` is false: refused")
        if envelope.network != "off":
            notes.append(f"`network` is {envelope.network}, and no egress is allowed: off")
    elif listed and not http.domains:
        notes.append("`http.fetch` is granted, and `domains` is empty: it reaches nothing")
    elif not listed and envelope.network == "off":
        notes.append("egress is allowed, and nothing is granted that could use it")
    if http.domains and not listed:
        notes.append("`domains` are listed, and `http.fetch` is not granted")
    if http.credentials and "http" in http.schemes:
        notes.append("credentials can be sent over plain http: leave it out of `schemes`")
    networks = [ip_network(block) for block in http.addresses]
    if any(address in network for address in _METADATA for network in networks):
        notes.append("`addresses` admits the cloud's metadata service, which hands out credentials")
    return notes


def _files(envelope: PolicyEnvelope) -> list[str]:
    listed = any(name in FILE_CAPABILITIES for name in envelope.allowed_host_apis)
    notes = []
    if not envelope.allow_file_io:
        if listed:
            notes.append("`fs.*` is listed, and `allow_file_io` is false: refused")
        if envelope.filesystem != "read-only-package":
            notes.append(f"`filesystem` is {envelope.filesystem}, and no file IO is allowed")
    elif not envelope.scratch_mb:
        notes.append("file IO is allowed, and `scratch_mb` is 0: nothing can be written")
    elif not listed and envelope.filesystem == "read-only-package":
        notes.append("file IO is allowed, and nothing is granted that could use it")
    return notes
