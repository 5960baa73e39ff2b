"""``--device``: where a command computes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tacit.errors import InvalidInput


@contextlib.contextmanager
def on_device(name: str | None) -> Iterator[None]:
    """Compute on the CPU or on a GPU."""
    import jax

    if name is None:
        yield
        return
    try:
        device = jax.devices(name)[0]
    except RuntimeError:
        raise InvalidInput(
            f"Expected a {name} that JAX can use, found {jax.devices()[0].platform} only. "
            "Nothing was run."
        ) from None
    with jax.default_device(device):
        yield
