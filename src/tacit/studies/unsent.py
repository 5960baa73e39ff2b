"""One manner of saying that nothing left a party: every refusal here comes before any message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tacit.errors import InvalidInput, TacitError

NOTHING = "Nothing was sent."
# what other rooms say was not done
OTHERS = re.compile(r"\s*Nothing was [a-z ]+\.$")


@contextmanager
def nothing_sent(what: str) -> Iterator[None]:
    """Errors of other rooms with this room's last sentence.

    Guarantee: an error that none of our checks raised is told by its type alone, since its own
    words may hold what is in the data.
    """
    try:
        yield
    except TacitError as error:
        words = OTHERS.sub("", str(error)).rstrip()
        raise type(error)(f"{words} {NOTHING}") from None
    except ImportError:
        raise
    except Exception as error:
        why = type(error).__name__
        words = f"Expected sound values of ordinary size in {what}, got others ({why}). {NOTHING}"
        raise InvalidInput(words) from None
