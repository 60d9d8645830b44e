"""`http.fetch`: the order of the checks, and redirects.

Owns the loop over hops. Each hop goes the whole way: policy, lookup, address check, dial. What a
hop needs to know is in its module's docstring; what must hold over all of them is here: one
deadline, one byte quota, and nothing private crosses from one origin to another.
"""

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin

from toolcell.broker.call import Call, Refusal
from toolcell.broker.http.addresses import Rules
from toolcell.broker.http.credentials import Secret, authorised
from toolcell.broker.http.exchange import Answer, Ask, exchange
from toolcell.broker.http.grants import HttpGrants
from toolcell.broker.http.headers import Headers, checked_request_headers, kept_across_origins
from toolcell.broker.http.url import Target, parse_url
from toolcell.broker.interface import HttpFetch, HttpResponse
from toolcell.errors import Status
from toolcell.policy.envelope import HttpPolicy
from toolcell.session import Session

if TYPE_CHECKING:
    from toolcell.broker.services import BrokerServices

__all__ = ["HttpCapability"]

_USER_AGENT = "toolcell/0.1"
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")  # RFC 3986 section 4.2
_BODILESS = frozenset({"GET", "HEAD"})


class _Request:
    """What is to be sent next; a redirect changes it."""

    def __init__(self, target: Target, method: str, headers: Headers, body: bytes) -> None:
        self.target = target
        self.method = method
        self.headers = headers
        self.body = body
        self.secret: Secret | None = None

    def follow(self, target: Target, status: int) -> None:
        """Becomes the request that a redirect with `status` asks for (RFC 9110 section 15.4)."""
        rewritten = status == 303 or (status in {301, 302} and self.method == "POST")
        if rewritten and self.method not in _BODILESS:
            self.method = "GET"
            self.body = b""
            self.headers = [h for h in self.headers if not h[0].lower().startswith("content-")]
        if target.origin != self.target.origin:
            self.headers = kept_across_origins(self.headers)
            self.secret = None
        self.target = target

    def wire_headers(self) -> Headers:
        """All headers but the framing, in the order that they are sent."""
        headers = [
            ("Host", self.target.authority),
            ("Accept-Encoding", "gzip"),
            ("Connection", "close"),
        ]
        if not any(name.lower() == "user-agent" for name, _ in self.headers):
            headers.append(("User-Agent", _USER_AGENT))
        headers += self.headers
        if self.secret is not None:
            headers.append((self.secret.header, self.secret.value))
        return headers


class HttpCapability:
    """`http.fetch` of one invocation. Keeps no connection, cookie or answer between calls."""

    def __init__(self, session: Session, policy: HttpPolicy, services: "BrokerServices") -> None:
        self._session = session
        self._policy = policy
        self._services = services
        self._grants = HttpGrants(policy)
        self._rules: Rules = services.address_rules(policy.addresses)

    def fetch(self, call: Call, params: HttpFetch) -> HttpResponse:
        """Serves one fetch. A refusal on a later hop says which hop."""
        if params.timeout_ms is not None:
            call.shorten(params.timeout_ms)
        target = parse_url(params.url)
        call.target = target.host
        request = self._checked(target, params)
        for hop in range(self._policy.max_redirects + 1):
            try:
                answer = self._hop(call, request)
                if not answer.location or self._policy.max_redirects == 0:
                    return self._response(request, answer)
                request.follow(_redirected(request.target, answer.location), answer.status)
            except Refusal as refusal:
                if hop:
                    refusal.message = f"after {hop} redirect(s): {refusal.message}"
                raise
        raise Refusal(
            "max_redirects",
            f"more than {self._policy.max_redirects} redirects (`max_redirects`)",
            status=Status.UPSTREAM,
        )

    def close(self) -> None:
        """Nothing is kept."""

    def _checked(self, target: Target, params: HttpFetch) -> _Request:
        """The first request. Policy comes first: what is not granted is not looked at further."""
        method = params.method.upper()
        self._grants.check(target, method)
        headers = checked_request_headers(params.headers, self._policy.max_header_bytes)
        if params.body and method in _BODILESS:
            raise Refusal("body", f"{method} takes no body", status=Status.MALFORMED)
        if len(params.body) > self._policy.max_request_bytes:
            raise Refusal(
                "max_request_bytes",
                f"a body of {len(params.body)} bytes; "
                f"`max_request_bytes` is {self._policy.max_request_bytes}",
                status=Status.TOO_LARGE,
            )
        request = _Request(target, method, headers, params.body)
        if params.credential is not None:
            request.secret = self._secret(params.credential, target, headers)
        return request

    def _secret(self, name: str, target: Target, headers: Headers) -> Secret:
        """The header that carries the secret `name`, where policy and store both allow it here."""
        if name not in self._policy.credentials:
            raise Refusal(
                "credential",
                "the credential is not granted",
                remedy="add its name to `capabilities.http.credentials` in the policy",
            )
        credential = self._services.credentials.find(name)
        authorised(credential, name, target)
        if any(key.lower() == credential.header.lower() for key, _ in headers):
            raise Refusal(
                "header",
                f"`{credential.header}` is set by the tool and by the credential",
                status=Status.MALFORMED,
                remedy="leave one of them out",
            )
        secret = credential.secret(name)
        for form in secret.forms:
            self._services.on_secret(form)
        return secret

    def _hop(self, call: Call, request: _Request) -> Answer:
        target = request.target
        self._grants.check(target, request.method)
        addresses = self._addresses(target, call)
        call.usage.network_requests += 1
        ask = Ask(
            method=request.method,
            target=target,
            headers=request.wire_headers(),
            body=request.body,
            max_header_bytes=self._policy.max_header_bytes,
            max_response_bytes=self._policy.max_response_bytes,
        )
        tls = self._services.tls if target.scheme == "https" else None
        answer = exchange(ask, addresses, tls, call)
        if request.secret is not None and request.secret.echoed(answer.headers, answer.body):
            raise Refusal(
                "credential",
                "the server sent the credential back; the response is withheld",
                status=Status.UPSTREAM,
                remedy="ask for another path, or bind the secret to another domain",
            )
        return answer

    def _addresses(self, target: Target, call: Call) -> list[str]:
        """The addresses that may be dialled: looked up once, and each one checked."""
        if target.is_address:
            found = [target.host]
        else:
            found = self._services.resolver.resolve(target.host, call)
        refused = ""
        allowed = []
        for address in found:
            rule = self._rules.refusal(address)
            if rule:
                refused = refused or rule
            else:
                allowed.append(address)
        if not allowed:
            raise Refusal(
                f"address.{refused}",
                f"`{target.host}` has no address that may be dialled: {refused}",
                remedy="an operator may add its network to `capabilities.http.addresses`",
            )
        return allowed

    @staticmethod
    def _response(request: _Request, answer: Answer) -> HttpResponse:
        headers = answer.headers
        if request.secret is not None:  # a session cookie is as good as the secret itself
            headers = [(k, v) for k, v in headers if k.lower() not in {"set-cookie", "set-cookie2"}]
        return HttpResponse(
            status=answer.status, url=request.target.url, headers=headers, body=answer.body
        )


def _redirected(base: Target, location: str) -> Target:
    """Where a `Location` leads. It is a server's text: whatever is wrong with it is 502."""
    text = quote(location, safe="%/:=&?~#+!$,;'@()*[]\\|^`{}<>\"", encoding="latin-1")
    if text.startswith("//"):
        text = f"{base.scheme}:{text}"
    elif not _HAS_SCHEME.match(text):
        text = urljoin(base.url, text)
    try:
        return parse_url(text)
    except Refusal as refusal:
        raise Refusal(
            "redirect",
            f"the server redirected to something that is not taken: {refusal.message}",
            status=Status.UPSTREAM,
        ) from None
