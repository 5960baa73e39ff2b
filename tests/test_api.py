"""What worked with version 0.1.0 works: names, parameters, defaults, commands and their options.

What may be added: names, members, defaults, parameters that have a default, options, choices.
``fixtures/api-0.1.0.json`` was recorded at the last commit of that version, 993c186.
"""

import argparse
import builtins
import dataclasses
import inspect
import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.cli.main import COMMANDS as NOW
from tacit.cli.main import parse, parser
from tacit.learn import PrivateLogisticRegression

MODULES = {  # of the record, and where their names are now
    "tacit": "tacit",
    "tacit.learn": "tacit.learn",
    "tacit.power": "tacit.power",
    "tacit.audit": "tacit.lab.audit",
    "tacit.accounting": "tacit.privacy.accounting",
    "tacit.mechanisms": "tacit.privacy.mechanisms",
    "tacit.secure": "tacit.privacy.secure_noise",
    "tacit.settings": "tacit.admm.settings",
    "tacit.theory": "tacit.admm.theory",
}
RECORDED = json.loads((Path(__file__).parent / "fixtures" / "api-0.1.0.json").read_text())
COMMANDS = RECORDED.pop("commands")
GONE = {"GeometricPenalty", "GeometricStep", "plan", "plot"}  # nothing used them
NAMES = [(module, name) for module, said in RECORDED.items() for name in sorted({*said} - GONE)]
# What is different, on purpose
CHANGED = {
    "tacit.Ledger.store": "it takes the payment that charge returned: a payment is owned and used "
    "once (Privacy in the changelog). An agent calls it, users do not",
    "tacit.Ledger.fail": "the same",
    "tacit.Settings.for_budget": "mechanism is None where it is not given, with the same outcome: "
    "a wish for Gaussian noise can be told from none",
    "tacit.Conic.entries": "an attribute; it was a property",
    "tacit.secure.SecureNoise.slack": "nothing used it",
    "tacit.secure.SecureNoise.event": "nothing used it",
}
# Options: every round is paid for by itself; --json has numbers; the paper's figures have its noise
GONE = {"block", "plot", ("reproduce", "calibration")}
# Options whose default is another, on purpose
CHANGED_DEFAULTS = {
    ("power solve", "mechanism"): "a release has the mechanism that adds less noise; noise in "
    "every round is Gaussian, as it was",
    ("learn", "feature_norm"): "of a classifier it is 1, as it was; of a regression it is planned",
}
MARKS = {"KEYWORD_ONLY": "* ", "VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}


def parameters(function):
    """As in a signature, without annotations; keyword-only ones have a star each."""
    return [
        MARKS.get(p.kind.name, "")
        + p.name
        + ("" if p.default is p.empty else f"={getattr(p.default, '__name__', repr(p.default))}")
        for p in inspect.signature(function).parameters.values()
        if p.name != "self"
    ]


def members(cls):
    """Public methods of Tacit's own with their parameters, and other values as ""."""
    found = {}
    for base in reversed(cls.__mro__):
        for name in vars(base) if base.__module__.startswith("tacit") else ():
            if not name.startswith("_") or name == "__call__":
                held = inspect.getattr_static(cls, name)
                called = isinstance(held, staticmethod | classmethod) or inspect.isfunction(held)
                found[name] = parameters(getattr(cls, name)) if called else ""
    return found


def incompatible(before, now):
    """The first parameter of ``before`` that calls could not use in the same way ``now``."""
    after = iter([p for p in now if not p.startswith("* ")])
    there = {p.removeprefix("* ") for p in now}
    for parameter in before:
        keyword = parameter.startswith("* ")
        if parameter.removeprefix("* ").split("=")[0] in GONE:
            continue
        if keyword and parameter[2:] not in there:
            return parameter
        if not keyword and parameter not in ((found := next(after, "")), found.split("=")[0]):
            return parameter  # a default that it has got is no harm
    known = {p.removeprefix("* ") for p in before}
    return next((p for p in now if p.removeprefix("* ") not in known and not optional(p)), None)


def optional(parameter):
    return "=" in parameter or (parameter.startswith("*") and not parameter.startswith("* "))


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        (["a", "b=1"], ["a", "b=1", "c=2", "* d=3", "**e"], None),
        (["a", "* b=1", "* c"], ["a", "* c", "* b=1"], None),
        (["a", "* b=1"], ["a", "b=1"], None),
        (["a", "b"], ["a"], "b"),
        (["a", "b"], ["b", "a"], "a"),
        (["a", "b=1"], ["a", "b=2"], "b=1"),
        (["a", "b"], ["a", "* b"], "b"),
        (["a"], ["a", "* b"], "* b"),
    ],
)
def test_what_counts_as_compatible(before, now, found):
    assert incompatible(before, now) == found


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda part: part)
def test_a_name_of_the_first_version_is_there_and_takes_the_same(module, name):
    before, value = RECORDED[module][name], getattr(import_module(MODULES[module]), name)
    if "is" in before:
        module, _, same = before["is"].rpartition(".")
        assert value is getattr(import_module(MODULES[module]), same)
        return
    takes = before.get("parameters", [])
    assert not takes or incompatible(takes, parameters(value)) is None
    if not inspect.isclass(value):
        return
    seen = {*tacit.__all__, *vars(builtins)}
    assert set(before.get("bases", [])) & seen <= {base.__name__ for base in value.__mro__}
    assert not before.get("fields") or set(before["fields"]) <= {
        field.name for field in dataclasses.fields(value)
    }
    has = members(value)
    differing = {
        f"{module}.{name}.{member}"
        for member, takes in before.get("members", {}).items()
        if member not in has
        or isinstance(takes, str) != isinstance(has[member], str)
        or incompatible(takes, has[member]) is not None
    }
    assert differing == {path for path in CHANGED if path.startswith(f"{module}.{name}.")}


def actions(command):
    """The options and arguments of a command, by name."""
    words = [command] if command.startswith("learn") else command.split()
    level = parser(command if command in NOW else words[0])
    for word in words:
        (below,) = (a for a in level._actions if isinstance(a, argparse._SubParsersAction))
        level = below.choices[word]
    return {action.dest: action for action in level._actions}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_first_version_takes_every_option(command):
    now = actions(command)
    if command == "learn":  # the three things that it does
        now = {**actions("learn attack"), **actions("learn download"), **now}
    for option in COMMANDS[command]:
        if (name := option["name"]) == "attacked" or name in GONE or (command, name) in GONE:
            continue  # the first is a word of the command
        action, chosen = now[name], option["choices"] or []
        assert set(option["flags"]) <= set(action.option_strings), name
        assert action.required <= option["required"], name
        assert option["nargs"] in (action.nargs, None), name
        assert action.choices is None or set(chosen) <= set(action.choices), name
        kind = getattr(action.type, "__name__", "str").strip("_")
        assert kind == option["type"] or {kind, option["type"]} == {"int", "whole"}, name
        if option["flags"] and not option["required"]:
            same = action.default == option["default"]
            assert same != ((command, name) in CHANGED_DEFAULTS), name


def test_commands_of_learning_are_told_from_data():
    assert parse(["learn", "download", "--data", "d"]).data == "d"
    assert parse(["learn", "attack", "digits"]).attacked == "digits"
    assert parse(["learn", "./attack"]).data_set == "./attack"


def test_old_names_of_arguments_work_with_a_warning():
    X, y, sizes = np.eye(2), [0, 1], {"feature_norm": 1.0, "normaliser": 2.0}
    with pytest.warns(FutureWarning, match="slope_limit is now clip"):
        assert tacit.LogisticRegression(X, y, slope_limit=0.2, **sizes).clip == 0.2
    with pytest.warns(FutureWarning, match="limit_form is now clip_form"):
        f = tacit.SoftmaxRegression(X, y, 3, clip=0.2, limit_form="norm", **sizes)
    assert f.clip_form == "norm"
    with pytest.warns(FutureWarning, match="slope_limit is now clip"):
        model = PrivateLogisticRegression(slope_limit=0.3)
    assert model.clip == 0.3 and "slope_limit" not in model.get_params()
