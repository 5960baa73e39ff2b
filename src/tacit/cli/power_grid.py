"""The options that say which grid, in which zones, for all commands ``tacit power``."""

from __future__ import annotations

import argparse
from typing import Any

OF_SOLVE = ("noise_on", "objective", "shed_price", "nominal_spread")


def add_grid(command: Any, *, required: bool) -> None:
    command.add_argument(
        "case",
        nargs=None if required else "?",
        help="MATPOWER file (.m) or a named case such as case14",
    )
    command.add_argument(
        "--zones",
        default="3",
        help="a number, 'area', or a CSV file with columns bus, zone (default: 3)",
    )
    command.add_argument(
        "--beta",
        default="0.01",
        help="how far a bus's demands may move: per unit, '1%% of largest' or '1%% of bus'",
    )
    command.add_argument(
        "--nominal",
        help="case with public loads: a percentage is taken of them, and loads that are read once "
        "are drawn towards them",
    )


def build_case(options: argparse.Namespace) -> Any:
    from tacit.power import build

    return build(*_case(options), **_about(options))


def public_case(options: argparse.Namespace) -> Any:
    """The same before any zone's problem is made."""
    from tacit.power.public_model import public_model

    return public_model(*_case(options), **_about(options))


def _case(options: argparse.Namespace) -> tuple[Any, Any]:
    return options.case, int(options.zones) if options.zones.isdigit() else options.zones


def _about(options: argparse.Namespace) -> dict[str, Any]:
    return dict(
        beta=options.beta,
        nominal=options.nominal,
        **{name: getattr(options, name) for name in OF_SOLVE if hasattr(options, name)},
    )
