"""What the broker keeps for longer than one call.

Owns the persistent stores, the secrets, name resolution, the TLS settings, the folder that scratch
spaces are made in and the limit on image workers. Made once by the runtime, shared by its threads.
Everything is opened when first needed, so that a runtime which never fetches never loads a CA file.
"""

import importlib
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from toolcell.errors import ConfigError
from toolcell.home import Home

if TYPE_CHECKING:
    import ssl

    from toolcell.broker.files.root import ScratchRoot
    from toolcell.broker.http.addresses import Rules
    from toolcell.broker.http.credentials import CredentialStore
    from toolcell.broker.http.resolver import Resolver
    from toolcell.broker.images.process import ImageWorkers
    from toolcell.broker.kv.sqlite import KvPool

__all__ = ["BrokerServices", "Lookup", "system_lookup"]

Lookup = Callable[[str], list[str]]
"""Host name -> its addresses. May block; a failure is an :class:`OSError`."""


def system_lookup(host: str) -> list[str]:
    """The addresses of `host` as this machine resolves it, without repeats, in its order."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class BrokerServices:
    """The broker's long-lived part. Thread-safe. `close` once no invocation is under way.

    `kv_dir`: folder of the persistent namespaces; None refuses them. `secrets_file`: the secret
    store (see `toolcell.broker.http.credentials`); None refuses credentials. `scratch_dir`: folder
    that scratch spaces are made in, default one of this user's own in the temporary folder.
    `ca_file`: certificates to trust in place of the machine's. `lookup`: name resolution.
    `address_rules`: what may be dialled, in place of the table and the policy's `addresses`; for
    tests that show what the table stops. `image_workers`: processes that decode pictures at the
    same time, default 2. `on_secret` hears of each secret before it is used, so that whoever writes
    logs can keep it out of them.
    """

    def __init__(
        self,
        *,
        kv_dir: Path | None = None,
        secrets_file: Path | None = None,
        scratch_dir: Path | None = None,
        ca_file: Path | None = None,
        lookup: Lookup = system_lookup,
        address_rules: "Rules | None" = None,
        image_workers: int = 2,
        on_secret: Callable[[str], None] = lambda _secret: None,
    ) -> None:
        self._kv_dir = kv_dir
        self._secrets_file = secrets_file
        self._scratch_dir = scratch_dir
        self._ca_file = ca_file
        self._lookup = lookup
        self._address_rules = address_rules
        self._image_worker_count = image_workers
        self.on_secret = on_secret
        self._lock = threading.Lock()
        self._tls: ssl.SSLContext | None = None
        self._kv: KvPool | None = None
        self._credentials: CredentialStore | None = None
        self._resolver: Resolver | None = None
        self._scratch: ScratchRoot | None = None
        self._images: ImageWorkers | None = None

    @classmethod
    def for_home(cls, home: Home, on_secret: Callable[[str], None] = lambda _secret: None) -> Self:
        """The services of an installation: its namespaces, its secrets, its scratch folder."""
        return cls(
            kv_dir=home.kv,
            secrets_file=home.secrets,
            scratch_dir=home.scratch,
            on_secret=on_secret,
        )

    # --- http ---

    @property
    def tls(self) -> "ssl.SSLContext":
        """How certificates are checked. Made once: loading the machine's CAs takes milliseconds."""
        with self._lock:
            if self._tls is None:
                self._tls = _tls_context(self._ca_file)
            return self._tls

    @property
    def resolver(self) -> "Resolver":
        """Name resolution under a deadline."""
        with self._lock:
            if self._resolver is None:
                from toolcell.broker.http.resolver import Resolver

                self._resolver = Resolver(self._lookup)
            return self._resolver

    @property
    def credentials(self) -> "CredentialStore":
        """The secrets that may be added to a request."""
        with self._lock:
            if self._credentials is None:
                from toolcell.broker.http.credentials import CredentialStore

                self._credentials = CredentialStore(self._secrets_file)
            return self._credentials

    def address_rules(self, granted: tuple[str, ...]) -> "Rules":
        """Which addresses may be dialled where the policy grants `granted`."""
        if self._address_rules is not None:
            return self._address_rules
        from toolcell.broker.http.addresses import rules_for

        return rules_for(granted)

    # --- kv, fs, images ---

    @property
    def kv(self) -> "KvPool":
        """The persistent namespaces."""
        with self._lock:
            if self._kv is None:
                from toolcell.broker.kv.sqlite import KvPool

                self._kv = KvPool(self._kv_dir)
            return self._kv

    @property
    def scratch(self) -> "ScratchRoot":
        """Where scratch spaces are made."""
        with self._lock:
            if self._scratch is None:
                from toolcell.broker.files.root import ScratchRoot

                self._scratch = ScratchRoot(self._scratch_dir)
            return self._scratch

    @property
    def images(self) -> "ImageWorkers":
        """The processes that decode pictures."""
        with self._lock:
            if self._images is None:
                from toolcell.broker.images.process import ImageWorkers

                self._images = ImageWorkers(self._image_worker_count)
            return self._images

    # --- life ---

    def reap(self) -> int:
        """Removes scratch spaces of runtimes that are gone; returns how many.

        For start-up, so that an operator hears of it; the first scratch space does the same.
        """
        return self.scratch.reap()

    def warm_up(self, capabilities: Iterable[str]) -> None:
        """Loads what `capabilities` need, so that the first call does not wait for an import.

        Nothing is opened but the CA certificates, where `http.fetch` is among them.
        """
        for interface in sorted({name.partition(".")[0] for name in capabilities}):
            module = _MODULES.get(interface)
            if module is not None:
                importlib.import_module(module)
            if interface == "http":
                _ = self.tls

    def close(self) -> None:
        """Closes the stores and removes the scratch folder. Idempotent."""
        with self._lock:
            kv, self._kv = self._kv, None
            scratch, self._scratch = self._scratch, None
        if kv is not None:
            kv.close()
        if scratch is not None:
            scratch.close()


_MODULES = {
    "kv": "toolcell.broker.kv.capability",
    "http": "toolcell.broker.http.fetch",
    "fs": "toolcell.broker.files.capability",
    "images": "toolcell.broker.images.capability",
    "log": "toolcell.broker.log",
}


def _tls_context(ca_file: Path | None) -> "ssl.SSLContext":
    """TLS 1.2 or newer, certificate and host name checked. `ca_file` None: the machine's CAs.

    Not `create_default_context`, which writes session keys to a file that the environment names.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if ca_file is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        try:
            context.load_verify_locations(cafile=str(ca_file))
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"{ca_file.name} holds no certificates that can be used: {error.strerror}",
                remedy="give a PEM file of CA certificates",
            ) from None
    return context
