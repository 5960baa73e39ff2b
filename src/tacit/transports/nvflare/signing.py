"""The coordinator's signature (Ed25519) on every request, and its check at a party.

    signed = signature ‖ request
    signature of  context ‖ digest of the study ‖ party ‖ SHA-256 of the request

Guarantee: a party acts on a request only if the holder of the coordinator's key signed these very
bytes for this study and this party. Whoever carries them, the engine's server or another party,
can delay, drop or repeat them; what a repetition gets is the reply that the ledger has stored.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from tacit.errors import CorruptFile
from tacit.files import read_bytes, reading
from tacit.protocol.masks import new_identity, read_identity

CONTEXT = b"tacit federation request 1\0"
LENGTH = 64


def write_keys(private: Path, public: Path) -> None:
    """A new pair of keys, from the operating system's randomness."""
    key = new_identity(private).public_key()
    public.write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def fingerprint(public: Path) -> str:
    """SHA-256 of a public key, to compare by eye or to pin in a party's own file."""
    der = _public(public).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _public(key: Path) -> Ed25519PublicKey:
    with reading(key, "a public key"):
        loaded = load_pem_public_key(read_bytes(key))
    if not isinstance(loaded, Ed25519PublicKey):
        raise CorruptFile(f"Expected an Ed25519 key in {key}, got another kind.")
    return loaded


class Signer:
    """Signs requests of one study."""

    def __init__(self, key: Path, digest: str) -> None:
        self._key, self._digest = read_identity(key), digest

    def sign(self, party: str, request: bytes) -> bytes:
        signature: bytes = self._key.sign(_said(self._digest, party, request))
        return signature + request

    def matches(self, public: Path) -> bool:
        pem = self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return bool(pem == public.read_bytes())


class Verifier:
    """Takes requests of one study to one party."""

    def __init__(self, key: Path, digest: str, party: str) -> None:
        self._key, self._digest, self._party = _public(key), digest, party

    def request(self, signed: bytes) -> bytes | None:
        """The request, or None where the coordinator did not sign it for this party."""
        signature, request = signed[:LENGTH], signed[LENGTH:]
        try:
            self._key.verify(signature, _said(self._digest, self._party, request))
        except InvalidSignature:
            return None
        return request


def _said(digest: str, party: str, request: bytes) -> bytes:
    """What is signed: every part with its length, so that no two readings are the same bytes."""
    parts = (
        digest.encode(),
        party.encode("utf-8", "surrogatepass"),
        hashlib.sha256(request).digest(),
    )
    return CONTEXT + b"".join(len(part).to_bytes(8, "big") + part for part in parts)
