"""Real servers on loopback, as hostile as a test wants them, and a broker that may reach them."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

from broker_runs import Run, close_runs, envelope, rule_of

from toolcell.broker import BrokerServices
from toolcell.broker.interface import HttpResponse
from toolcell.errors import CapabilityFault
from toolcell.policy.envelope import HttpPolicy

LOOPBACK = ("127.0.0.0/8", "::1/128")


class Received:
    """A request as the server got it."""

    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = first.split(" ", 2)
        self.headers = [tuple(line.split(": ", 1)) for line in lines if line]
        self.body = body

    def header(self, name: str) -> str | None:
        """The value of header `name`, or None."""
        return next((v for k, v in self.headers if k.lower() == name.lower()), None)


class Peer:
    """The server's end of one connection."""

    def __init__(self, connection: Any, ended: threading.Event) -> None:
        self.connection = connection
        self.ended = ended
        self.request: Received

    def read_request(self) -> Received | None:
        """The next request, or None where the client went away."""
        raw = b""
        while b"\r\n\r\n" not in raw:
            piece = self.connection.recv(65536)
            if not piece:
                return None
            raw += piece
        head, _, body = raw.partition(b"\r\n\r\n")
        request = Received(head, body)
        length = int(request.header("Content-Length") or 0)
        while len(request.body) < length:
            request.body += self.connection.recv(65536)
        return request

    def send(self, data: bytes) -> bool:
        """Sends `data`; False where the client went away."""
        try:
            self.connection.sendall(data)
        except OSError:
            return False
        return True

    def answer(self, body: bytes = b"", *headers: str, status: str = "200 OK") -> bool:
        """Sends a whole response."""
        head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers])
        return self.send(head.encode("latin-1") + b"\r\n\r\n" + body)

    def redirect(self, location: str, status: int = 302) -> bool:
        """Sends a redirect."""
        return self.answer(b"", f"Location: {location}", status=f"{status} Moved")

    def drip(self, data: bytes, pause_s: float = 0.02) -> None:
        """Sends `data` a byte at a time, until the client or the test goes away."""
        for at in range(len(data)):
            if not self.send(data[at : at + 1]) or self.ended.wait(pause_s):
                return

    def hold(self, longest_s: float = 20) -> None:
        """Says nothing more until the client or the test goes away."""
        self.connection.settimeout(longest_s)
        with contextlib.suppress(OSError):
            while self.connection.recv(65536):
                pass


class LoopbackServer:
    """Listens on loopback; gives each request to `respond`, in a thread of its own.

    `greeting` is sent before anything is read.
    """

    def __init__(
        self,
        respond: Callable[[Peer], Any] | None,
        *,
        address: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        port: int = 0,
        greeting: bytes = b"",
    ) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((address, port))
        self._listener.listen(16)
        self.port = int(self._listener.getsockname()[1])
        self._respond = respond
        self._tls = tls
        self._greeting = greeting
        self._ended = threading.Event()
        self._open: list[Any] = []
        self._threads: list[threading.Thread] = []
        self.requests: list[Received] = []
        self.connections = 0
        self.hung_up = threading.Event()
        """Set when a connection that was served is over."""
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, raw: socket.socket) -> None:
        connection: Any = raw
        with contextlib.suppress(OSError):
            raw.settimeout(20)
            raw.sendall(self._greeting)
            if self._tls is not None:
                connection = self._tls.wrap_socket(raw, server_side=True)
                self._open.append(connection)
            peer = Peer(connection, self._ended)
            if self._respond is None:
                peer.hold()
            else:
                while (request := peer.read_request()) is not None:
                    peer.request = request
                    self.requests.append(request)
                    self._respond(peer)
                    if request.header("Connection") == "close":
                        break
        with contextlib.suppress(OSError):
            connection.close()
        self.hung_up.set()

    def close(self) -> None:
        """Ends every connection and waits for the threads."""
        self._ended.set()
        for one in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(5)
        for thread in self._threads:
            thread.join(5)
        for one in self._open:
            one.close()


class Web:
    """A small internet: names, servers, and a broker that is granted all of it.

    `names` maps a name to its addresses; a name that is not there does not resolve. `lookups` has
    every name that was looked up. Policy fields given to `get` and `refused` replace the defaults.
    """

    def __init__(self, **services: Any) -> None:
        self.names: dict[str, list[str]] = {"good.test": ["127.0.0.1"]}
        self.lookups: list[str] = []
        self.servers: list[LoopbackServer] = []
        self._services: dict[str, Any] = {"lookup": self.look_up, **services}
        self._made: BrokerServices | None = None
        self.run: Run

    @property
    def services(self) -> BrokerServices:
        """The broker's services, made on first use."""
        if self._made is None:
            self._made = BrokerServices(**self._services)
        return self._made

    def look_up(self, host: str) -> list[str]:
        self.lookups.append(host)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.names[host]

    def serve(
        self, respond: Callable[[Peer], Any] | None = lambda peer: peer.answer(b"ok"), **how: Any
    ) -> LoopbackServer:
        """A server; `None` answers nothing, ever."""
        server = LoopbackServer(respond, **how)
        self.servers.append(server)
        return server

    def policy(self, **fields: Any) -> HttpPolicy:
        defaults: dict[str, Any] = {
            "domains": tuple(self.names),
            "schemes": ("http", "https"),
            "ports": tuple({server.port for server in self.servers} | {80, 443}),
            "methods": ("GET", "HEAD", "POST", "PUT", "DELETE"),
            "addresses": LOOPBACK,
            "timeout_ms": 5000,
        }
        return HttpPolicy(**{**defaults, **fields})

    def open(self, policy: dict[str, Any] | None = None, **fields: Any) -> Run:
        """A run whose `http` policy is the default with `policy` over it."""
        self.run = Run(envelope(http=self.policy(**(policy or {})), **fields), self.services)
        return self.run

    def get(self, url: str, policy: dict[str, Any] | None = None, **params: Any) -> HttpResponse:
        """Fetches `url` in a run of its own."""
        run = self.open(policy)
        try:
            return run.call("http.fetch", url=url, **params)
        finally:
            run.broker.close()

    def refused(
        self, url: str, policy: dict[str, Any] | None = None, **params: Any
    ) -> tuple[int, str, CapabilityFault]:
        """Fetches `url`, which must be refused; returns status, rule and fault."""
        run = self.open(policy)
        try:
            fault = run.refused("http.fetch", url=url, **params)
        finally:
            run.broker.close()
        return fault.status, rule_of(fault), fault

    def close(self) -> None:
        """Ends the runs and the servers."""
        close_runs()
        for server in self.servers:
            server.close()
        if self._made is not None:
            self._made.close()


class AnyAddress:
    """Address rules that refuse nothing: the defence, switched off."""

    def refusal(self, address: str) -> str:
        return ""
