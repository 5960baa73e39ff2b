"""What worked with version 0.1.0 works: names, parameters, defaults, commands and their options.

What may be added: names, members, defaults, parameters that have a default, options, choices.
"""

import builtins
import json
from importlib import import_module
from pathlib import Path

import pytest
from recorded_api import MOVED, described, members, own, parameters

import tacit
from tacit.cli import main

RECORDED = json.loads((Path(__file__).parent / "fixtures" / "api-0.1.0.json").read_text())
COMMANDS = RECORDED.pop("commands")
RECORDED = {MOVED.get(module, module): said for module, said in RECORDED.items()}
GONE = {"GeometricPenalty", "GeometricStep"}  # nothing used them
NAMES = [(module, name) for module, said in RECORDED.items() for name in sorted(said.keys() - GONE)]
# What is different, on purpose
CHANGED = {
    "tacit.Ledger.store": "it takes the payment that charge returned: a payment is owned and used "
    "once (Privacy in the changelog). An agent calls it, users do not",
    "tacit.Ledger.fail": "the same",
    "tacit.Settings.for_budget": "mechanism is None where it is not given, with the same outcome: "
    "a wish for Gaussian noise can be told from none",
}
# Options whose default is another, on purpose
CHANGED_DEFAULTS = {
    (
        "power solve",
        "mechanism",
    ): "loads are read once, with the law that adds less noise; in every "
    "round it is Gaussian, as it was",
    ("learn", "feature_norm"): "of a classifier it is 1, as it was; of a regression it is planned",
}


def test_the_record_is_whole():
    assert [len(said) for said in RECORDED.values()] == [53, 13, 16, 10, 6, 4, 2, 1, 4]
    assert len(COMMANDS) == 14 and sum(map(len, COMMANDS.values())) == 120


def incompatible(before, now):
    """The first parameter of ``before`` that calls could not use in the same way ``now``."""
    after = iter([p for p in now if not p.startswith("* ")])
    there = {p.removeprefix("* ") for p in now}
    for parameter in before:
        keyword = parameter.startswith("* ")
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
        (["a", "b"], ["a", "b=1"], None),
        (["a", "b"], ["a"], "b"),
        (["a", "b"], ["b", "a"], "a"),
        (["a", "b=1"], ["a", "b=2"], "b=1"),
        (["a", "b"], ["a", "* b"], "b"),
        (["a", "* b=1"], ["a"], "* b=1"),
        (["a"], ["a", "b"], "b"),
        (["a"], ["a", "* b"], "* b"),
    ],
)
def test_what_counts_as_compatible(before, now, found):
    assert incompatible(before, now) == found


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda part: part)
def test_a_name_of_the_first_version_is_there_and_takes_the_same(module, name):
    before, value = RECORDED[module][name], getattr(import_module(module), name)
    if "is" in before:
        room, _, same = before["is"].rpartition(".")
        assert value is getattr(import_module(room), same)
        return
    now = described(value)
    assert incompatible(before.get("parameters", []), now.get("parameters", [])) is None
    seen = {*tacit.__all__, *vars(builtins)}
    assert set(before.get("bases", [])) & seen <= set(now.get("bases", []))
    assert set(before.get("fields", [])) <= set(now.get("fields", []))
    has = members(value, own(value)) if before.get("members") else {}
    differing = [
        member
        for member, takes in before.get("members", {}).items()
        if member not in has
        or isinstance(takes, str) != isinstance(has[member], str)
        or incompatible(takes, has[member]) is not None
    ]
    assert [m for m in differing if f"{module}.{name}.{m}" not in CHANGED] == []


def test_what_is_listed_as_changed_is_changed():
    for path in CHANGED:
        module, name, member = path.rsplit(".", 2)
        before = RECORDED[module][name]["members"][member]
        now = parameters(getattr(getattr(import_module(module), name), member))
        assert incompatible(before, now) is not None, f"{path} need not be listed"


VALUES = {"str": "text", "int": "3", "whole": "1e3", "float": "0.5"}
READ = {"str": "text", "int": 3, "whole": 1000, "float": 0.5}


def begun(command, option):
    """The command with what it needs for this option: words, and arguments that must be there."""
    words = command.split()
    if command == "learn":  # the three things that it does
        attack = option["name"] in ("attacked", "records", "total_epsilons", "seeds")
        return [*words, "attack", "digits"] if attack else [*words, "digits"]
    for needed in COMMANDS[command]:
        if not needed["flags"] and needed["name"] != option["name"]:
            words.append((needed["choices"] or ["text"])[0])
        elif needed["required"] and needed["flags"] and needed is not option:
            words += [needed["flags"][0], VALUES[needed["type"]]]
    return words


@pytest.fixture(scope="module")
def parse():
    return main.parse


def lines(command, option):
    """Command lines that use one option or argument, and what must be read."""
    before = begun(command, option)
    if command == "learn" and not option["flags"]:
        yield before, before[1] if option["name"] == "data_set" else before[2]
    elif not option["flags"]:
        for value in option["choices"] or ["text"]:
            yield [*before, value], value
    elif option["nargs"] == 0:
        yield from (([*before, flag], not option["default"]) for flag in option["flags"])
    else:
        for flag in option["flags"]:
            for value in option["choices"] or [VALUES[option["type"]]]:
                read = value if option["choices"] else READ[option["type"]]
                many = option["nargs"] == "+" or isinstance(option["default"], list)
                yield [*before, flag, value], [read] if many else read


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_first_version_takes_every_option(command, parse):
    for option in COMMANDS[command]:
        for words, read in lines(command, option):
            assert getattr(parse(words), option["name"]) == read, words
        if option["flags"] and not option["required"]:
            left_out = getattr(parse(begun(command, option)), option["name"])
            same = left_out == option["default"]
            assert same != ((command, option["name"]) in CHANGED_DEFAULTS), f"{command}, {option}"


def test_every_positional_that_could_be_left_out_still_can(parse):
    for command, options in COMMANDS.items():
        if command == "learn":
            continue
        for option in options:
            if option["nargs"] == "?":
                assert getattr(parse(command.split()), option["name"]) is None


def test_a_command_of_learning_is_one_word_of_data(parse):
    assert parse(["learn", "download", "--data", "d"]).data == "d"
