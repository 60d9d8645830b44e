"""Key files and key texts."""

import resource
import stat
from contextlib import contextmanager

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from toolcell.errors import ConfigError
from toolcell.home import given_key, owner_only_key
from toolcell.trust.edit import add_key
from toolcell.trust.keys import PublicKey, SigningKey, write_new


def test_a_key_comes_back_from_its_file(tmp_path):
    key, path = SigningKey.generate(), tmp_path / "me.pem"
    write_new(path, key.to_pem(), 0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.load(path).public == key.public


def test_a_passphrase_is_needed_where_one_was_given(tmp_path):
    key, path = SigningKey.generate(), tmp_path / "me.pem"
    write_new(path, key.to_pem("open sesame"), 0o600)
    assert SigningKey.load(path, "open sesame").public == key.public
    with pytest.raises(ConfigError, match="is encrypted") as caught:
        SigningKey.load(path)
    assert caught.value.details["encrypted"] is True
    with pytest.raises(ConfigError, match="passphrase is wrong"):
        SigningKey.load(path, "shazam")


def test_a_passphrase_for_a_key_without_one_is_an_error(tmp_path):
    path = tmp_path / "me.pem"
    write_new(path, SigningKey.generate().to_pem(), 0o600)
    with pytest.raises(ConfigError, match="is not encrypted"):
        SigningKey.load(path, "open sesame")


def test_a_key_is_never_overwritten(tmp_path):
    path = tmp_path / "me.pem"
    write_new(path, b"first", 0o600)
    with pytest.raises(ConfigError, match="never overwritten"):
        write_new(path, b"second", 0o600)
    assert path.read_bytes() == b"first"


@contextmanager
def no_room():
    """No file can grow beyond 10 bytes: what a full disk looks like to a writer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_no_half_key_and_the_name_free(tmp_path):
    path, key = tmp_path / "me.pem", SigningKey.generate()
    with no_room(), pytest.raises(ConfigError, match=r"me\.pem can't be written: File too large"):
        write_new(path, key.to_pem(), 0o600)
    assert list(tmp_path.iterdir()) == []
    write_new(path, key.to_pem(), 0o600)
    assert SigningKey.load(path).public == key.public


def test_a_full_disk_leaves_the_trust_store_as_it_was(tmp_path):
    path = tmp_path / "trust.toml"
    add_key(path, "acme", SigningKey.generate().public)
    before = path.read_bytes()
    with no_room(), pytest.raises(ConfigError, match=r"trust\.toml can't be written"):
        add_key(path, "acme", SigningKey.generate().public)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*.new"))


def test_a_secret_that_can_not_be_written_is_not_there(tmp_path):
    path = tmp_path / "policy.key"
    with no_room(), pytest.raises(ConfigError, match="can't be written"):
        owner_only_key(path)
    assert list(tmp_path.iterdir()) == []
    assert len(owner_only_key(path)) == 32


def test_advice_on_a_key_that_somebody_named_destroys_nothing(tmp_path):
    path = tmp_path / "pol.toml"
    path.write_text("memory_mb = 5\n")
    for mode in (0o644, 0o600):
        path.chmod(mode)
        with pytest.raises(ConfigError) as caught:
            given_key(path)
        assert "delete" not in caught.value.remedy
        assert "the right key" in caught.value.remedy


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_key_that_others_may_touch_is_not_used(tmp_path, mode):
    path = tmp_path / "me.pem"
    write_new(path, SigningKey.generate().to_pem(), 0o600)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="others may read it"):
        SigningKey.load(path)


def test_a_link_to_a_key_is_not_followed(tmp_path):
    real, link = tmp_path / "real.pem", tmp_path / "me.pem"
    write_new(real, SigningKey.generate().to_pem(), 0o600)
    link.symlink_to(real)
    with pytest.raises(ConfigError, match="can't be read"):
        SigningKey.load(link)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"-----BEGIN PRIVATE KEY-----\nAAAA\n"])
def test_a_damaged_key_is_a_clear_error(tmp_path, content):
    path = tmp_path / "me.pem"
    write_new(path, content, 0o600)
    with pytest.raises(ConfigError, match="damaged"):
        SigningKey.load(path)


def test_a_key_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "ec.pem"
    other = ec.generate_private_key(ec.SECP256R1())
    pem = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_new(path, pem, 0o600)
    with pytest.raises(ConfigError, match="no Ed25519 key"):
        SigningKey.load(path)
    public = other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(ConfigError, match="no Ed25519 public key"):
        PublicKey.parse(public.decode())


def test_a_public_key_is_read_as_base64_and_as_pem():
    private = ed25519.Ed25519PrivateKey.generate()
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    key = PublicKey.parse(pem.decode())
    assert PublicKey.parse(f"  {key}\n") == key
    assert len(key.id) == 64
    assert key.id == PublicKey(key.raw).id


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 43, "ä" * 44, "A" * 44 + "====", "-----BEGIN"])
def test_a_public_key_that_is_none_is_refused(text):
    with pytest.raises(ConfigError):
        PublicKey.parse(text)


def test_a_private_key_shows_nothing_of_itself():
    key = SigningKey.generate()
    secret = key.private.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    assert secret.hex() not in repr(key) + str(key)
    assert repr(key).startswith("SigningKey(")
