"""Ed25519 keys: their text forms, their files, and what makes a key id.

Owns reading and writing of key files. Decides nothing about trust. Used by `toolcell.trust.store`,
`toolcell.artifact.dsse` and the `keygen`, `sign` and `trust` commands.
"""

import base64
import binascii
import hashlib
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from toolcell.errors import ConfigError
from toolcell.home import ensure_private_dir, link_new, writing
from toolcell.trust.owned_file import sync_directory
from toolcell.trust.plain_file import open_plain_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["PUBLIC_KEY_BYTES", "PublicKey", "SigningKey", "write_new"]

PUBLIC_KEY_BYTES = 32
"""RFC 8032 section 5.1.5."""
_MAX_KEY_FILE_BYTES = 16 * 1024


class PublicKey:
    """An Ed25519 public key. Equal where the bytes are."""

    def __init__(self, raw: bytes) -> None:
        if len(raw) != PUBLIC_KEY_BYTES:
            raise ConfigError(
                f"an Ed25519 public key has {PUBLIC_KEY_BYTES} bytes, this one has {len(raw)}",
                remedy="copy the key again, as `toolcell keygen` printed it",
            )
        self.raw = raw

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads base64 of the 32 bytes, as `keygen` prints it, or PEM (SubjectPublicKeyInfo)."""
        text = text.strip()
        if text.startswith("-----BEGIN"):
            return cls(_public_from_pem(text))
        try:
            return cls(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError):
            raise ConfigError(
                "a public key is neither base64 nor PEM",
                remedy="give what `toolcell keygen` printed, or a PEM file",
            ) from None

    @cached_property
    def id(self) -> str:
        """The key id: SHA-256 of the 32 bytes, in hex. Made from the key, never read beside it."""
        return hashlib.sha256(self.raw).hexdigest()

    def __str__(self) -> str:
        return base64.b64encode(self.raw).decode("ascii")

    def __repr__(self) -> str:
        return f"PublicKey({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw)


class SigningKey:
    """An Ed25519 private key. Its bytes show in no message and no representation."""

    def __init__(self, private: "Ed25519PrivateKey") -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        self._private = private
        raw = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = PublicKey(raw)

    @classmethod
    def generate(cls) -> Self:
        """A new key, from the system's random generator."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @property
    def private(self) -> "Ed25519PrivateKey":
        """The key itself, for the signer."""
        return self._private

    def to_pem(self, passphrase: str = "") -> bytes:
        """PKCS #8 in PEM, encrypted where there is a `passphrase`."""
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            Encoding,
            KeySerializationEncryption,
            NoEncryption,
            PrivateFormat,
        )

        encryption: KeySerializationEncryption = (
            BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
        )
        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)

    @classmethod
    def load(cls, path: Path, passphrase: str = "") -> Self:
        """Reads a PEM file that only its owner may read; mode 0600 is required, never repaired.

        :class:`ConfigError` where it is missing, open to others, no Ed25519 key, or encrypted
        under another passphrase. `details["encrypted"]` is true where a passphrase is needed.
        """
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        pem = _read_private(path)
        try:
            key = load_pem_private_key(pem, passphrase.encode() if passphrase else None)
        except TypeError:
            encrypted = not passphrase
            raise ConfigError(
                f"{path} is {'encrypted' if encrypted else 'not encrypted'}",
                remedy="give its passphrase" if encrypted else "leave the passphrase away",
                details={"encrypted": encrypted},
            ) from None
        except (ValueError, UnsupportedAlgorithm):
            wrong = "passphrase is wrong, or it is damaged" if passphrase else "it is damaged"
            raise ConfigError(
                f"{path} can't be read as a private key: {wrong}",
                remedy="give a PEM file that `toolcell keygen` made",
            ) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError(
                f"{path} holds no Ed25519 key", remedy="make one with `toolcell keygen`"
            )
        return cls(key)

    def __repr__(self) -> str:
        return f"SigningKey({self.public.id[:16]}…)"


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Writes a file that must not exist yet: all of it, or none.

    :class:`ConfigError` where it exists, or where it can't be written (a full disk, say).
    """
    ensure_private_dir(path.parent)
    try:
        with writing(path):
            link_new(path, data, mode)
            sync_directory(path.parent)
    except FileExistsError:
        raise ConfigError(
            f"{path} exists, and keys are never overwritten",
            remedy="choose another name, or move the old key away",
        ) from None


def _read_private(path: Path) -> bytes:
    try:
        opened = open_plain_file(path)
    except OSError as error:
        raise ConfigError(
            f"the key {path} can't be read: {error.strerror}",
            remedy="name a key in the home folder, or the path of a PEM file",
        ) from None
    with opened as file:
        info = os.fstat(file.fileno())
        if info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise ConfigError(
                f"{path} holds a private key, and others may read it "
                f"(mode {info.st_mode & 0o777:o})",
                remedy=f"chmod 600 {path}; if others could read it, revoke it and make a new one",
            )
        return file.read(_MAX_KEY_FILE_BYTES)


def _public_from_pem(text: str) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_public_key,
    )

    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(
            "the PEM text holds no Ed25519 public key",
            remedy="give the public part, as `toolcell keygen` printed it",
        )
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)
