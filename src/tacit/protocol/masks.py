"""Pairwise masks: whoever adds up what all participants send learns the sum, and no part of it.

    u_p = y_p + Σ_{q>p} m_pq − Σ_{q<p} m_pq  mod 2⁶⁴       Σ_p u_p = Σ_p y_p  mod 2⁶⁴

    K_pq = HKDF-SHA256(secrets that p and q share, salt: the study, info: run, epoch, roster, keys)
    m_pq = ChaCha20 under HKDF-Expand(K_pq, tag), n little-endian numbers of 64 bits
    tag  = SHA-256 of all that the sum is about: run, epoch, round, roster, noise, n, the request

Every participant draws an X25519 key (and one of ML-KEM-768, where the installed cryptography has
it) for an epoch, which is a start of the run or of any of its processes; keys are in memory only.
Public keys are signed by identities (Ed25519) that the parties of a study have exchanged beforehand
(``Roster``); within one owner there are none, and nothing to hide.

Guarantee: as long as nobody breaks X25519 (and ML-KEM-768), HKDF-SHA256 and ChaCha20, those who
know all keys but those of two or more honest participants see numbers of these that are uniform but
for their sum. Where two of them were asked about different things, be it one bit of the request,
their masks do not cancel, and the sum is uniform too. Nothing is recovered where one is missing:
the sum is void until it answers the same request.
Proof. K_pq is known to p and q only. A tag occurs once for every y_p: it names run, epoch, round
and request, and a participant answers one request in a round with one y_p (``summed.Summand``). So
the m_pq of honest pairs are independent and uniform, a function of nothing else that is sent. Add
them up along any tree of honest pairs: all honest u_p but the last are uniform, the last is what is
missing to the sum, and with different tags it is uniform too. ∎
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.errors import CorruptFile, Refused
from tacit.files import read_bytes, reading, write_atomically
from tacit.protocol.messages import Roster

PURPOSE = b"tacit secure sum 1\0"
X25519, MLKEM, MLKEM_SEALED, SECRET, SIGNATURE = 32, 1184, 1088, 32, 64  # bytes
WHOLE_BITS = 62  # parts are cut to 2^(62 - log2 P), so that no sum of P of them wraps around


class Epoch:
    """A participant's keys of one epoch of a run.

    ``public`` is its signed key, for all others. ``meet`` takes everybody's and gives what it seals
    for each of them, and ``finish`` takes what they sealed for it: then ``mask`` works.
    """

    def __init__(
        self, study: str, run: str, epoch: int, roster: Roster, name: str, identity: Any = None
    ) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self.roster, self.me = roster, roster.names.index(name)
        self._salt = bytes.fromhex(study) if study else bytes(32)
        self._about = PURPOSE + _said(study, run, epoch, roster.sha256)
        self._key: Any = X25519PrivateKey.generate()
        self._kem = _new_kem()
        key = self._key.public_key().public_bytes_raw()
        if self._kem is not None:
            key += self._kem.public_key().public_bytes_raw()
        self._identity = identity
        self.public = self._sign(key, self.me).hex()
        self._keys: list[bytes] = []
        self._secrets: dict[int, bytes] = {}  # of the key encapsulation, with each of the others
        self._shared: dict[int, bytes] = {}  # K_pq

    def _sign(self, data: bytes, *places: int) -> bytes:
        """With a signature, where there are identities: of what one says, or says to another."""
        signed = self._signed(data, *places)
        return data + (self._identity.sign(signed) if self._identity else b"")

    def _signed(self, data: bytes, *places: int) -> bytes:
        return self._about + _said(*(self.roster.names[i] for i in places)) + data

    def meet(self, told: Mapping[str, str]) -> dict[str, str]:
        """Take everybody's signed keys; what is sealed for those after this one in the roster."""
        names, sizes = self.roster.names, (X25519, X25519 + MLKEM)
        keys = [self._checked(told.get(name, ""), sizes, i) for i, name in enumerate(names)]
        mine = bytes.fromhex(self.public)
        if len(told) != len(keys) or keys[self.me] != mine[: len(keys[self.me])]:
            raise Refused("Expected the keys of all parties, and one's own among them, got others.")
        if len({key[:X25519] for key in keys}) < len(keys):
            raise Refused("Expected a key of each party's own, got one twice.")
        self._keys, self._secrets, self._shared = keys, {}, {}
        sealed = {}
        for q in range(self.me + 1, len(keys)):
            if self._kem is not None and len(keys[q]) > X25519:
                self._secrets[q], text = _public_kem(keys[q][X25519:]).encapsulate()
                sealed[self.roster.names[q]] = self._sign(text, self.me, q).hex()
        return sealed

    def _checked(self, told: str, sizes: tuple[int, ...], *places: int) -> bytes:
        """What a party says of itself, or says to this one, with its signature for this epoch."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        name, said = self.roster.names[places[0]], _bytes(told)
        identities = self.roster.identities
        data = said[:-SIGNATURE] if identities else said
        if len(data) not in sizes:
            raise Refused(f"Expected a key of party {name!r}, got {len(data)} bytes.")
        if identities:
            public = Ed25519PublicKey.from_public_bytes(identities[places[0]])
            try:
                public.verify(said[-SIGNATURE:], self._signed(data, *places))
            except InvalidSignature:
                raise Refused(
                    f"Expected a key that party {name!r} has signed for this run, epoch and list "
                    "of parties, got another. Nothing was computed."
                ) from None
        return data

    def finish(self, told: Mapping[str, str]) -> None:
        """Take what those before this one in the roster have sealed for it."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        if not self._keys:
            raise Refused("Expected the keys of all parties first.")
        for p, key in enumerate(self._keys):
            if p < self.me and self._kem is not None and len(key) > X25519:
                text = told.get(self.roster.names[p], "")
                data = self._checked(text, (MLKEM_SEALED,), p, self.me)
                self._secrets[p] = self._kem.decapsulate(data)
        for q, key in enumerate(self._keys):
            if q != self.me:
                other = X25519PublicKey.from_public_bytes(key[:X25519])
                secret = self._key.exchange(other) + self._secrets.get(q, b"")
                first, second = sorted((self.me, q))
                info = self._about + self._keys[first] + self._keys[second]
                self._shared[q] = _derived(secret, self._salt, info)

    def forget(self) -> None:
        """The end of the run: nothing is masked any more."""
        self._key = self._kem = None
        self._keys, self._secrets, self._shared = [], {}, {}

    @property
    def ready(self) -> bool:
        return len(self._shared) == len(self.roster.names) - 1

    def mask(self, values: Vector, *about: Any) -> Vector:
        """u_p for the whole numbers y_p, under the tag of this epoch and all it is ``about``."""
        if not self.ready:
            raise Refused("Expected the keys of all parties before a sum. Nothing was computed.")
        tag = hashlib.sha256(self._about + _said(*about, len(values))).digest()
        total = np.array(values, np.int64).view(np.uint64)
        for q, key in self._shared.items():
            mask = np.frombuffer(_stream(key, tag, total.nbytes), "<u8")
            total = total + mask if q > self.me else total - mask
        return total.view(np.int64)


def cut(steps: Vector, parties: int) -> Vector:
    """Whole numbers, clipped so that no sum wraps around, noise included."""
    most = 2.0 ** (WHOLE_BITS - (parties - 1).bit_length())
    found: Vector = np.clip(steps, -most, most).astype(np.int64)
    return found


def added_up(parts: Sequence[Vector]) -> Vector:
    """Σ u_p modulo 2⁶⁴, as signed numbers."""
    total = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        total = total + np.asarray(part, np.int64).view(np.uint64)
    return total.view(np.int64)


def new_identity(path: str | Path) -> Any:
    """A party's own key, made on its own machine, in a private file."""
    from cryptography.hazmat.primitives import serialization as to
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption()
    write_atomically(path, key.private_bytes(*pem))
    return key


def read_identity(path: str | Path) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    with reading(path, "a private key"):
        key = load_pem_private_key(read_bytes(path), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise CorruptFile(f"Expected an Ed25519 key in {path}, got another kind.")
    return key


def fingerprint(identity: bytes) -> str:
    """Of a public key, short enough to compare by telephone: 80 bits, in fives."""
    import base64

    text = base64.b32encode(hashlib.sha256(PURPOSE + identity).digest()[:10]).decode().lower()
    return "-".join(text[i : i + 4] for i in range(0, 16, 4))


# --- pyca/cryptography ------------------------------------------------------------------------


def _new_kem() -> Any:
    """A key of ML-KEM-768, or None where the library has none."""
    try:
        from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

        return MLKEM768PrivateKey.generate()
    except Exception:  # not in this library, or not in the one below it
        return None


def _public_kem(key: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey

    return MLKEM768PublicKey.from_public_bytes(key)


def _derived(secret: bytes, salt: bytes, info: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), SECRET, salt, info).derive(secret)


def _stream(key: bytes, tag: bytes, size: int) -> bytes:
    """So many bytes of ChaCha20 under a key that is used for this tag alone."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    once = HKDFExpand(SHA256(), SECRET, tag).derive(key)
    stream = Cipher(algorithms.ChaCha20(once, bytes(16)), mode=None).encryptor()
    return stream.update(bytes(size))


def _said(*parts: Any) -> bytes:
    """Plain values as bytes, no two of them alike."""
    return json.dumps(parts, separators=(",", ":")).encode("ascii")


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise Refused("Expected bytes as hexadecimal digits, got something else.") from None
