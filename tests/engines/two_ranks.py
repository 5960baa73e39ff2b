"""``--engine mpi`` in one process: three agents on two ranks, whose messages are packed."""

from types import SimpleNamespace

from tacit.cli import ranks
from tacit.engines import mpi
from tacit.engines.parcels import pack, unpack


class TwoRanks(mpi.Ranks):
    """Two ranks of one process."""

    def __init__(self, _, builders):
        first, second = (SimpleNamespace(rank=rank, size=2) for rank in range(2))
        super().__init__(first, builders)
        self.both = self._own, mpi._Rank(second, builders)

    def _ask(self, what, *about, shares=None):
        told, shares = unpack(pack(list(about))), shares or [None, None]
        pairs = zip(self.both, shares, strict=True)
        answers = [rank.answer(what, told, share) for rank, share in pairs]
        assert not any(failed for _, failed, _ in answers), answers
        return [answer for *_, answer in answers]

    def end(self, how):
        assert how == 0 and [len(rank.part.agents) for rank in self.both] == [1, 2]


def two_ranks(monkeypatch):
    monkeypatch.setattr(mpi, "Ranks", TwoRanks)
    monkeypatch.setattr(ranks, "_world", lambda ranks: None)
