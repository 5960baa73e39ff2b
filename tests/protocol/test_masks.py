"""Masks: the sum and nothing else, by the formulas of the page, and what a coalition sees."""

import hashlib
import hmac
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from conftest import repeat
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from tacit.errors import Refused
from tacit.protocol import masks
from tacit.protocol.masks import Epoch, added_up, cut
from tacit.protocol.messages import Roster

MOD = 2**64
STUDY = hashlib.sha256(b"a study").hexdigest()


def met(many, epoch=1, identities=True, run="run"):
    """Everybody's epoch, keys exchanged."""
    names = tuple(f"p{i}" for i in range(many))
    keys = [Ed25519PrivateKey.generate() for _ in names] if identities else []
    public = tuple(key.public_key().public_bytes_raw() for key in keys)
    roster = Roster(names, public)
    own = keys or [None] * many
    found = [Epoch(STUDY, run, epoch, roster, *of) for of in zip(names, own, strict=True)]
    told = {name: one.public for name, one in zip(names, found, strict=True)}
    sealed = [one.meet(told) for one in found]
    for name, one in zip(names, found, strict=True):
        said = zip(names, sealed, strict=True)
        one.finish({p: s[name] for p, s in said if name in s})
    return found


@pytest.mark.parametrize("many", [3, 4, 10, repeat(30, 50)])
def test_masked_is_plain_bit_for_bit(many):
    rng = np.random.default_rng(many)
    most = 2 ** (62 - (many - 1).bit_length())
    parts = [rng.integers(-most, most, 40) for _ in range(many)]
    for part in parts:
        part[:2] = most, -most  # whose sum does not wrap around
    masked = [e.mask(y, 1, "about") for e, y in zip(met(many), parts, strict=True)]
    total = added_up(masked)
    assert np.array_equal(total, sum(parts)) and total.tolist()[:2] == [many * most, -many * most]
    assert all((u != y).all() for u, y in zip(masked, parts, strict=True))
    far = cut(np.array([1e300, -1e300, 5.0]), many)
    assert far.tolist() == [most, -most, 5]


# --- by the formulas, without the code ------------------------------------------------------------


def hkdf(secret, salt, info):
    key = hmac.digest(salt, secret, "sha256")
    return hmac.digest(key, info + b"\x01", "sha256")


def stream(key, tag, n):
    once = hmac.digest(key, tag + b"\x01", "sha256")
    cipher = Cipher(algorithms.ChaCha20(once, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * n)), "<u8")


@pytest.mark.parametrize("identities", [True, False])
def test_masks_are_those_of_the_page(identities):
    """Every pair has one, of all bits of the keys, and another for whatever it is about."""
    found, n = met(4, identities=identities), 50
    y = np.arange(n)
    for about in ((1, "w"), (2, "w"), (1, "w'")):
        tag = hashlib.sha256(found[0]._about + masks._said(*about, n)).digest()
        for p, one in enumerate(found):
            total = y.astype(np.uint64)
            for q, other in enumerate(found):
                if p == q:
                    continue
                first, second = (found[i] for i in sorted((p, q)))
                secret = one._key.exchange(other._key.public_key()) + first._secrets[max(p, q)]
                raw = [masks._bytes(x.public) for x in (first, second)]
                raw = [r[: -masks.SIGNATURE] if identities else r for r in raw]
                key = hkdf(secret, bytes.fromhex(STUDY), one._about + b"".join(raw))
                mask = stream(key, tag, n)
                total = total + mask if q > p else total - mask
            assert np.array_equal(one.mask(y, *about).view(np.uint64), total)
    for word in (STUDY, "run", "1", found[0].roster.sha256):  # what keys and tags are bound to
        assert word.encode() in found[0]._about


# --- what a coalition sees ------------------------------------------------------------------------


def chi(numbers):
    """χ² of bytes, in deviations: about a standard normal number where they are uniform."""
    seen = np.frombuffer(np.ascontiguousarray(numbers).tobytes(), np.uint8)
    expected = seen.size / 256
    found = ((np.bincount(seen, minlength=256) - expected) ** 2 / expected).sum()
    return (found - 255) / math.sqrt(2 * 255)


def without(masked, one, knowing, n, *about):
    """A message with the masks taken off that ``knowing`` parties share."""
    tag = hashlib.sha256(one._about + masks._said(*about, n)).digest()
    left = masked.view(np.uint64)
    for q in knowing:
        mask = stream(one._shared[q], tag, n)
        left = left - mask if q > one.me else left + mask
    return left.view(np.int64)


@pytest.mark.parametrize("honest", [(0, 1), (0, 2), (1, 2, 3)])
def test_what_is_left_is_uniform_but_for_the_sum(honest):
    """To the server and all others, with all their keys. The control: with one honest party's keys
    as well nothing hides another's part."""
    found, n = met(5), 20_000
    rng = np.random.default_rng(1)
    parts = [rng.integers(-1000, 1000, n) for _ in found]
    others = [q for q in range(5) if q not in honest]
    left = [without(found[p].mask(parts[p], 1), found[p], others, n, 1) for p in honest]
    assert all(abs(chi(one)) < 5 for one in left)
    assert all(abs(chi(left[0] - other)) < 5 for other in left[1:])
    assert np.array_equal(
        sum(x.view(np.uint64) for x in left).view(np.int64), sum(parts[p] for p in honest)
    )
    p, everybody = honest[0], [q for q in range(5) if q != honest[0]]
    bare = without(found[p].mask(parts[p], 1), found[p], everybody, n, 1)
    assert np.array_equal(bare, parts[p]) and chi(bare) > 100


def test_two_inputs_with_the_same_sum_have_the_same_views(monkeypatch):
    """Exactly: for every view of the one there is one of the other, with masks exchanged."""
    found, n = met(4), 30
    rng = np.random.default_rng(2)
    y, d = [rng.integers(-(2**40), 2**40, n) for _ in found], rng.integers(-(2**40), 2**40, n)
    views = [one.mask(part, 1) for one, part in zip(found, y, strict=True)]
    real, pair = masks._stream, found[1]._shared[2]  # of two honest parties, 1 and 2
    assert pair == found[2]._shared[1]

    def exchanged(key, tag, size):
        mask = np.frombuffer(real(key, tag, size), "<u8")
        return (mask - d.view(np.uint64) * np.uint64(key == pair)).tobytes()

    monkeypatch.setattr(masks, "_stream", exchanged)
    moved = [y[0], y[1] + d, y[2] - d, y[3]]
    again = [one.mask(part, 1) for one, part in zip(found, moved, strict=True)]
    assert all(map(np.array_equal, views, again))


def test_no_mask_comes_twice():
    """In another round, for another request, epoch, run or number of entries, or the other way."""
    zero, seen = np.zeros(4, np.int64), set()
    abouts = [(t, w) for t in range(20) for w in ("w", "v")]
    epochs = [met(3), met(3, 2), met(3, 1, run="other")]
    for one in (one for epoch in epochs for one in epoch):
        seen |= {one.mask(zero, *about).tobytes()[:8] for about in abouts}
        seen |= {one.mask(zero[:3], *about).tobytes()[:8] for about in abouts}
    assert len(seen) == 9 * 2 * len(abouts)


def test_one_key_for_two_is_refused():
    """Also where both have signed it."""
    names = "a", "b", "c"
    a, b, c = (Epoch("", "run", 1, Roster(names), name) for name in names)
    told = {"a": a.public, "b": b.public, "c": b.public}
    with pytest.raises(Refused, match="got one twice"):
        a.meet(told)
    assert len(a.meet(told | {"c": c.public})) == (2 if a._kem else 0)


def test_after_the_end_nothing_is_masked():
    one = met(3)[0]
    one.forget()
    with pytest.raises(Refused):
        one.mask(np.zeros(3, np.int64), 1)


# --- the lemma ------------------------------------------------------------------------------------


def masses(variance, reach=60):
    weights = [(-Decimal(j * j) / (2 * variance)).exp() for j in range(-reach, reach + 1)]
    total = sum(weights)
    return {j: w / total for j, w in zip(range(-reach, reach + 1), weights, strict=True)}


@pytest.mark.parametrize(
    "scales", [("0.71", "0.71"), ("1", "0.8"), ("1.5", "1.5"), ("3", "0.6"), ("1", "1", "1"),
               ("0.8", "1.2", "2"), ("0.9", "0.9", "0.9", "0.9")]
)  # fmt: skip
def test_a_sum_of_discrete_gaussians_is_one(scales):
    """Each mass, up to τ; and τ is of the right size (of two)."""
    with localcontext(prec=60):
        squares = [Decimal(s) ** 2 for s in scales]
        found, τ, before = masses(squares[0]), Decimal(0), squares[0]
        for square in squares[1:]:
            one = masses(square)
            span = range(-40, 41)
            found = {j: sum(found.get(j - i, 0) * w for i, w in one.items()) for j in span}
            v = (before * square / (before + square)).sqrt()
            assert v >= Decimal("0.5")
            τ += Decimal("4.1") * (-2 * Decimal(math.pi) ** 2 * v**2).exp()
            before += square
        whole = masses(before, 90)
        reach = int(6 * before.sqrt())
        apart = [abs((found[j] / whole[j]).ln()) for j in range(-reach, reach + 1)]
        assert (0 if len(scales) > 2 else τ / 5) < max(apart) <= τ
