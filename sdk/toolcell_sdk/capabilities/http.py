"""`http.fetch`: one request through the broker, which checks it against the policy.

Capability: `http.fetch`. The broker follows redirects and checks each hop; it adds a credential
that the tool can name but never see.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from toolcell_sdk import transport
from toolcell_sdk.capabilities.arguments import from_base64, text, to_base64

__all__ = ["Response", "fetch"]


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, of any status: a 404 is an answer too. `url` is the one that gave it."""

    status: int
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 200 to 299."""
        return 200 <= self.status < 300

    def header(self, name: str, default: str = "") -> str:
        """The first header of that name, in any case."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), default)

    def text(self, encoding: str | None = None) -> str:
        """The body as text: in `encoding`, the charset of content-type, or UTF-8.

        Bytes that don't decode become U+FFFD.
        """
        if encoding is None:
            encoding = self._charset() or "utf-8"
        try:
            return self.body.decode(encoding, "replace")
        except LookupError:
            return self.body.decode("utf-8", "replace")

    def _charset(self) -> str:
        for parameter in self.header("content-type").split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset":
                return value.strip().strip("\"'")
        return ""

    def json(self) -> Any:
        """The body as JSON. Raises `ValueError` where it is not."""
        return json.loads(self.body)


def fetch(
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    body: bytes = b"",
    credential: str | None = None,
    timeout_ms: int | None = None,
) -> Response:
    """Sends one request and returns the whole answer.

    `credential` names a secret that the broker adds. `timeout_ms` can only shorten the deadline
    that the policy grants. Raises `CapabilityError`: 403 not granted, 408 deadline, 413 too
    large, 429 quota, 502 where the other side could not be reached or broke the protocol.
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    answer = transport.call(
        "http.fetch",
        {
            "method": text("http.fetch", "method", method),
            "url": text("http.fetch", "url", url),
            "headers": [
                [text("http.fetch", "header", name), text("http.fetch", "header", value)]
                for name, value in pairs
            ],
            "body": to_base64("http.fetch", "body", body),
            "credential": credential,
            "timeout_ms": timeout_ms,
        },
    )
    return Response(
        status=answer["status"],
        url=answer["url"],
        headers=tuple((name, value) for name, value in answer["headers"]),
        body=from_base64(answer["body"]),
    )
