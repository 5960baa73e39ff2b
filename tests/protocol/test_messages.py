"""Messages as bytes: there and back, one encoding each, and nothing else is taken for one."""

import tracemalloc

import msgpack
import numpy as np
import pytest
from conftest import repeat
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import tacit
from tacit.errors import CorruptFile
from tacit.protocol.messages import FORMAT, REASONS, Broadcast, Refusal, Reply, from_bytes

texts = st.text(max_size=20)
rounds = st.integers(-(2**63), 2**63 - 1)
vectors = st.sampled_from([np.float32, np.float64]).flatmap(
    lambda dtype: arrays.arrays(dtype, st.integers(0, 30))
)
messages = st.one_of(
    st.builds(Broadcast, texts, rounds, vectors, st.dictionaries(texts, texts, max_size=4)),
    st.builds(Reply, texts, rounds, vectors, st.booleans()),
    st.builds(Refusal, texts, rounds, st.sampled_from(sorted(REASONS)), texts),
)


def parts(message):
    """All fields; of arrays every bit and the number format."""
    return type(message), [
        (v.dtype.str, v.shape, v.tobytes()) if isinstance(v, np.ndarray) else v
        for v in vars(message).values()
    ]


@given(messages)
def test_there_and_back(message):
    assert parts(from_bytes(message.to_bytes())) == parts(message)


@given(st.binary(max_size=200))
@example(b"")
@example(msgpack.packb({"tacit": FORMAT}))
@example(msgpack.packb([]))
@example(b"\xdf\xff\xff\xff\xff")  # a map that says it is 4 billion entries long
def test_other_bytes_are_refused(data):
    with pytest.raises(CorruptFile, match="Expected a message of format 1"):
        from_bytes(data)


@settings(max_examples=repeat(150, 300))
@given(messages, st.data())
def test_a_changed_byte_is_another_message_or_none(message, data):
    """Never the same message from other bytes; a digest of the bytes is one of the message."""
    whole = message.to_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    try:
        found = from_bytes(bytes(changed))
    except CorruptFile:
        return
    assert parts(found) != parts(message) and found.to_bytes() == bytes(changed)


@given(messages, st.data())
def test_a_part_or_a_tail_is_refused(message, data):
    whole = message.to_bytes()
    with pytest.raises(CorruptFile):
        from_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(CorruptFile):
        from_bytes(whole + data.draw(st.binary(min_size=1, max_size=9)))


@pytest.mark.parametrize("filling", [b"\x90", b"\x80"])
def test_memory_is_a_small_multiple_of_the_message(filling):
    """Millions of empty lists or maps take no memory to write and much to read."""
    size = 500_000
    bombs = [
        b"\xdd" + size.to_bytes(4, "big") + filling * size,
        b"\xdf" + (size // 2).to_bytes(4, "big") + (b"\xa0" + filling) * (size // 2),
    ]
    for bomb in bombs:
        tracemalloc.start()
        with pytest.raises(CorruptFile):
            from_bytes(bomb)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10 * len(bomb), peak / len(bomb)


REPLY = {"tacit": 1, "kind": "reply", "run": "r", "round": 1, "primal": ["<f8", 1, bytes(8)]}


@pytest.mark.parametrize(
    "change",
    [
        {"tacit": 2},
        {"kind": "request"},
        {"run": b"r"},
        {"round": True},
        {"round": 1.0},
        {"primal": ["<f8", 2**62, bytes(8)]},
        {"primal": [">f8", 1, bytes(8)]},
        {"primal": ["<i8", 1, bytes(8)]},
        {"primal": [0.5]},
        {"primal": ["<f8", 1.0, bytes(8)]},
        {"more": 1},
    ],
)
def test_wrong_fields_are_refused(change):
    assert from_bytes(msgpack.packb(REPLY)).round == 1
    with pytest.raises(CorruptFile):
        from_bytes(msgpack.packb({**REPLY, **change}))


def test_fields_in_another_order_or_twice_are_refused():
    twice = msgpack.packb(REPLY)
    twice = bytes([twice[0] + 1]) + twice[1:] + msgpack.packb("run") + msgpack.packb("other")
    for other in (msgpack.packb(dict(reversed(REPLY.items()))), twice):
        with pytest.raises(CorruptFile):
            from_bytes(other)


def test_numbers_are_little_endian_whatever_the_machine_has():
    swapped = np.array([1.5, -2.0]).astype(">f8")
    data = Reply("r", 1, swapped).to_bytes()
    assert np.array([1.5, -2.0]).astype("<f8").tobytes() in data
    np.testing.assert_array_equal(from_bytes(data).primal, [1.5, -2.0])


def test_digests_tell_questions_apart():
    w = np.array([1.0, 2.0, 3.0])
    asked = [
        Broadcast("a", 1, w),
        Broadcast("b", 1, w),
        Broadcast("a", 2, w),
        Broadcast("a", 1, np.nextafter(w, 4)),
        Broadcast("a", 1, w.astype(np.float32)),
        Broadcast("a", 1, w[:2]),
        Broadcast("a", 1, w, instructions=w),
        Reply("a", 1, w),
    ]
    assert len({m.digest for m in asked}) == len(asked)
    # what the server last heard is not part of the question
    assert Broadcast("a", 1, w, {"x": "y"}).digest == asked[0].digest


@pytest.mark.parametrize("kind", [tacit.Refused, tacit.SolverFailure, tacit.LedgerFailure])
def test_a_refusal_is_the_error_that_it_came_from(kind):
    found = from_bytes(Refusal.of(kind("in words"), "r", 3).to_bytes()).error()
    assert type(found) is kind and str(found) == "in words"
