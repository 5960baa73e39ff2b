"""One manner of saying that nothing left a party: every refusal here comes before any message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tacit.errors import InvalidInput, TacitError

NOTHING = "Nothing was sent."


@contextmanager
def nothing_sent(what: str) -> Iterator[None]:
    """Errors of other packages, which then say that nothing was sent.

    Guarantee: an error that none of our checks raised is told by its type alone, since its own
    words may hold what is in the data.
    """
    try:
        yield
    except TacitError as error:
        raise type(error)(error.args[0], NOTHING) from None
    except ImportError:
        raise
    except Exception as error:
        why = type(error).__name__
        words = f"Expected sound values of ordinary size in {what}, got others ({why})."
        raise InvalidInput(words, NOTHING) from None
