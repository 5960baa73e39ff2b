"""Noise, what it costs, and who pays.

mechanisms    Gaussian, Laplace, no noise: its distribution, accounting event and exact cost
seeded_noise  where noise comes from; keys, and float32 numbers with full tails
secure_noise  exact discrete noise from the operating system's bits, with its proof
accounting    what many updates cost together; noise for a total budget
ledger        an agent's durable account in one SQLite file: budget, runs, charges, answers
"""

from tacit.privacy.accounting import Guarantee, basic, calibrate, compose, exact, paper
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Gaussian, Laplace, Mechanism, Noiseless
from tacit.privacy.secure_noise import SecureNoise

__all__ = [
    "Gaussian",
    "Guarantee",
    "Laplace",
    "Ledger",
    "Mechanism",
    "Noiseless",
    "SecureNoise",
    "basic",
    "calibrate",
    "compose",
    "exact",
    "paper",
]
