"""Key files and key texts."""

import stat

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from toolcell.errors import ConfigError
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
