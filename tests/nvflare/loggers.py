"""Processes of a study send our logger's words to a file of their own; tests do not stay so."""

import logging

import pytest


@pytest.fixture(autouse=True)
def _logger_as_it_was():
    _restore()
    yield
    _restore()


def _restore():
    logger = logging.getLogger("tacit")
    logger.handlers[:] = [h for h in logger.handlers if isinstance(h, logging.NullHandler)]
    logger.propagate = True
    logger.setLevel(logging.NOTSET)
