"""Secrets that the broker adds to a request, so that no tool needs to hold one.

Owns the secret store, `secrets.toml` in the home folder (mode 0600):

    [github]
    env = "GITHUB_TOKEN"          # or value = "…", or file = "/run/secrets/github"
    domains = ["api.github.com"]  # where it may go; same patterns as in a policy
    header = "Authorization"      # default
    scheme = "Bearer"             # default; "" sends the bare value, "Basic" encodes user:password
    insecure = false              # default; true lets it go over plain http

A policy names the secrets that a tool may ask for; this file binds each to domains. Both must
agree. A value never leaves this module but into a request.
"""

import base64
import os
import re
from pathlib import Path

import msgspec
from msgspec import Struct

from toolcell.broker.call import Refusal, shown
from toolcell.broker.http.grants import grants_host
from toolcell.broker.http.url import Target
from toolcell.errors import ConfigError, Status
from toolcell.policy.hosts import normal_domains
from toolcell.toml_text import parse_toml
from toolcell.trust.owned_file import WatchedFile

__all__ = ["Credential", "CredentialStore", "Secret", "authorised"]

_MAX_SECRET_BYTES = 8192
_MIN_ECHO_CHARS = 8
"""A shorter value is too likely to stand in a page by chance to be looked for."""

_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_SCHEME = re.compile(r"[A-Za-z0-9-]{0,32}")


class Credential(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One secret. Exactly one of `value`, `env` and `file` says where its value is."""

    domains: tuple[str, ...]
    value: str = ""
    env: str = ""
    file: str = ""
    header: str = "Authorization"
    scheme: str = "Bearer"
    insecure: bool = False

    def __post_init__(self) -> None:
        if sum(map(bool, (self.value, self.env, self.file))) != 1:
            raise ValueError("set exactly one of `value`, `env` and `file`")
        if not _HEADER.fullmatch(self.header):
            raise ValueError("`header` is not a header name")
        if self.header.lower() in {"host", "content-length", "transfer-encoding", "connection"}:
            raise ValueError("`header` is one that frames the message")
        if not _SCHEME.fullmatch(self.scheme):
            raise ValueError("`scheme` is not a word")
        msgspec.structs.force_setattr(self, "domains", normal_domains(self.domains))

    def __repr__(self) -> str:
        return f"Credential(header={self.header!r}, domains={self.domains!r})"

    def secret(self, name: str) -> "Secret":
        """The value as it is sent; read now, so that a rotated one is used at once."""
        raw = sent = self._read(name)
        if self.scheme.lower() == "basic":
            sent = base64.b64encode(raw.encode()).decode()
        value = f"{self.scheme} {sent}" if self.scheme else sent
        return Secret(header=self.header, value=value, forms=(raw, sent))

    def _read(self, name: str) -> str:
        try:
            if self.env:
                secret = os.environ.get(self.env, "")
            elif self.file:
                with Path(self.file).open("rb") as file:
                    secret = file.read(_MAX_SECRET_BYTES + 1).decode("ascii").strip("\r\n")
            else:
                secret = self.value
        except (OSError, UnicodeDecodeError):
            secret = ""
        if len(secret) > _MAX_SECRET_BYTES or not _VALUE.fullmatch(secret):
            raise Refusal(
                "credential",
                f"credential `{name}` has no usable value",
                status=Status.UPSTREAM,
                remedy="an operator must look at its entry in secrets.toml",
            )
        return secret


class Secret(Struct, frozen=True, kw_only=True):
    """A value on its way into one request. `forms`: how it looks where a server sends it back."""

    header: str
    value: str
    forms: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Secret(header={self.header!r})"

    def echoed(self, headers: list[tuple[str, str]], body: bytes) -> bool:
        """Whether a server sent the secret back, as a debugging endpoint does.

        A server that encodes it in some other way is one to bind no secret to.
        """
        return any(
            form.encode() in body or any(form in value for _, value in headers)
            for form in self.forms
            if len(form) >= _MIN_ECHO_CHARS
        )


class CredentialStore:
    """The secrets of `path`, as they are now: one that was taken out, or bound to fewer domains,
    counts from the next request on. A missing file is an empty store. Thread-safe.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else WatchedFile(path, _parse, secret=True)

    def find(self, name: str) -> Credential:
        """The secret `name`. :class:`Refusal` (403) where there is none; :class:`ConfigError`
        where the store can't be used at all.
        """
        entry = None if self._file is None else self._file.current().get(name)
        if entry is None:
            raise Refusal(
                "credential",
                f"credential `{shown(name)}` does not exist",
                remedy="an operator must add it to secrets.toml",
            )
        return entry


def authorised(credential: Credential, name: str, target: Target) -> None:
    """Raises a :class:`Refusal` (403) where the secret is not bound to `target`."""
    if not grants_host(frozenset(credential.domains), target):
        raise Refusal(
            "credential",
            f"credential `{name}` is not bound to `{shown(target.host)}`",
            remedy="an operator must add the domain to its entry in secrets.toml",
        )
    if target.scheme != "https" and not credential.insecure:
        raise Refusal(
            "credential",
            f"credential `{name}` is sent over https only",
            remedy="ask for the https URL",
        )


def _parse(raw: bytes | None) -> dict[str, Credential]:
    try:
        return msgspec.convert(parse_toml(raw or b""), dict[str, Credential])
    except ValueError as error:
        # A parser's message may quote a value; a position and a path of fields can't.
        reason = str(error) if isinstance(error, msgspec.ValidationError) else "not valid TOML"
        raise ConfigError(
            f"the secret store can't be used: {reason}",
            remedy="mend secrets.toml; nothing was sent",
        ) from None
