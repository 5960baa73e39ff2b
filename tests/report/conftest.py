"""Folders to make pages of."""

import pytest
from folders import Folders

import tacit  # noqa: F401  # 64 bits, before any test computes


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "matplotlib.figure.Figure.savefig", lambda figure, file, **_: file.write(b"not drawn")
        )
        yield Folders(tmp_path_factory.mktemp("runs"))
