"""Frozen dataclasses that JAX can look into: batch over, trace through, move to a GPU."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


def static(**options: Any) -> Any:
    """Mark a dataclass field as structure (hashable, equal for all members of a batch)."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def pytree(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen dataclass and register it with JAX."""
    frozen = dataclasses.dataclass(frozen=True, eq=False)(cls)
    register(frozen)
    return frozen


def register(cls: type[Any]) -> None:
    """Register a frozen dataclass with JAX; its static fields are part of a compiled program.

    JAX rebuilds values from leaves that need not be numbers (tracers, placeholders), so
    rebuilding skips ``__init__`` and ``__post_init__``: checks run once, on what a user gave.
    """
    import jax  # here, as a class may be defined and used without it

    fields = dataclasses.fields(cls)
    leaves = [f.name for f in fields if not f.metadata.get("static")]
    structure = [f.name for f in fields if f.metadata.get("static")]

    def flatten(value: Any) -> tuple[list[object], tuple[object, ...]]:
        return [getattr(value, n) for n in leaves], tuple(getattr(value, n) for n in structure)

    def unflatten(aux: tuple[object, ...], children: list[object]) -> Any:
        value = object.__new__(cls)
        for name, child in zip(leaves, children, strict=True):
            object.__setattr__(value, name, child)
        for name, item in zip(structure, aux, strict=True):
            object.__setattr__(value, name, item)
        return value

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)


def store(value: Any, **fields: object) -> None:
    """Set fields of a frozen dataclass while it is being made."""
    for name, content in fields.items():
        object.__setattr__(value, name, content)
