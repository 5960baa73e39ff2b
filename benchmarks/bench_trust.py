"""A charge beside a bare SQLite insert of the same row with the same durability, and secure noise.

Peer of the ledger: one table, WAL, full synchronisation, one INSERT per transaction with the same
bytes, and nothing else: no budget, no hash, no check. Both in this process, in turns, on one disk.
"""

import sqlite3
import time

import numpy as np

from tacit.privacy.ledger import INSERT, SCHEMA, Entry, Ledger, Terms
from tacit.privacy.mechanisms import Gaussian, Laplace
from tacit.privacy.secure_noise import SecureNoise

CHARGES = 300
REPEATS = 5


def terms(mechanism, rounds=10_000_000):
    return Terms("a", mechanism, rounds, 1, 1e-19, "secure", "one record", "d" * 64)


def raw(path):
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; {SCHEMA}")
    return db


def raw_insert(db, serial):
    row = Entry(serial, "2026-01-01T00:00:00.000+00:00", "charge", "run", serial, serial)
    start = time.perf_counter()
    db.execute("BEGIN IMMEDIATE")
    db.execute(INSERT, row)
    db.execute("COMMIT")
    return time.perf_counter() - start


def charge(ledger, t):
    start = time.perf_counter()
    ledger.charge("run", t, t)
    return time.perf_counter() - start


def test_charge_beside_raw_sqlite(tmp_path):
    for mechanism in (Gaussian(1e4), Laplace(1e7)):
        ratios, ours, theirs = [], [], []
        for repeat in range(REPEATS):
            name = f"{mechanism.name}-{repeat}"
            ledger = Ledger.create(tmp_path / f"{name}.db", 8.0, 1e-5)
            ledger.begin("run", terms(mechanism, 100_000))
            db = raw(tmp_path / f"{name}-raw.db")
            times = np.array(
                [(charge(ledger, t), raw_insert(db, t)) for t in range(1, CHARGES + 1)]
            )
            a, b = np.median(times[20:], axis=0)
            ratios.append(a / b)
            ours.append(a)
            theirs.append(b)
        print(
            f"\n{mechanism.name}: a charge {1e6 * np.median(ours):.0f} us, a bare insert "
            f"{1e6 * np.median(theirs):.0f} us: {np.median(ratios):.2f}x, "
            f"{1 / np.median(ours):.0f} charges/s"
        )
        assert np.median(ratios) <= 1.5


def test_the_thousandth_charge_beside_the_tenth(tmp_path):
    for mechanism in (Gaussian(1e4), Laplace(1e7)):
        ledger = Ledger.create(tmp_path / f"{mechanism.name}.db", 8.0, 1e-5)
        ledger.begin("run", terms(mechanism, 100_000))
        times = [charge(ledger, t) for t in range(1, 1101)]
        early, late = np.median(times[5:105]), np.median(times[1000:])
        print(
            f"\n{mechanism.name}: charges 6 to 105 {early * 1e6:.0f} us, 1001 to 1100 "
            f"{late * 1e6:.0f} us: {late / early:.2f}x"
        )
        assert late / early <= 1.25


def test_secure_noise():
    for mechanism in (Gaussian(5.0), Laplace(5.0)):
        noise = SecureNoise(mechanism, 0.1, 7840)
        noise.draw(1)
        times = []
        for _ in range(10):
            used = time.process_time()
            noise.draw(20)
            times.append(time.process_time() - used)
        rate = 20 * 7840 / np.median(times)
        print(f"\nsecure {mechanism.name}: {rate / 1e6:.1f} million numbers a second, one core")
        assert rate >= 1e6
