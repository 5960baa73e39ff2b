"""What users can call: names, parameters with defaults, members, commands with their options.

``tests/fixtures/api-0.1.0.json`` was written by this file with the source of version 0.1.0 (its
last commit, 993c186) in front of it:

    PYTHONPATH=OLD/src python tests/recorded_api.py > tests/fixtures/api-0.1.0.json
"""

import argparse
import dataclasses
import inspect
import json
import sys
from importlib import import_module
from unittest import mock

import tacit

ROOMS = ("tacit", "tacit.lab.audit", "tacit.learn", "tacit.power")  # all that their __all__ names
DOCUMENTED = {  # what the pages of 0.1.0 imported from modules, and what these functions return
    "tacit.accounting": ("Guarantee", "basic", "calibrate", "compose", "exact", "paper"),
    "tacit.mechanisms": ("Gaussian", "Laplace", "Mechanism", "Noiseless"),
    "tacit.secure": ("SecureNoise", "secure_noise"),
    "tacit.settings": ("Settings",),
    "tacit.theory": ("Constants", "ErgodicAverage", "bound", "constants"),
}
MOVED = {  # where the names are of modules that stood at the top
    "tacit.accounting": "tacit.privacy.accounting",
    "tacit.mechanisms": "tacit.privacy.mechanisms",
    "tacit.secure": "tacit.privacy.secure_noise",
    "tacit.audit": "tacit.lab.audit",
    "tacit.settings": "tacit.admm.settings",
    "tacit.theory": "tacit.admm.theory",
}
MARKS = {"KEYWORD_ONLY": "* ", "VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}


def parameters(function):
    """As in a signature, without annotations; keyword-only ones have a star each."""
    found = inspect.signature(function).parameters.values()
    return [
        MARKS.get(p.kind.name, "")
        + p.name
        + ("" if p.default is p.empty else f"={text(p.default)}")
        for p in found
        if p.name != "self"
    ]


def text(default):
    """Without addresses and the paths of modules, which may move."""
    return getattr(default, "__name__", None) or repr(default)


def own(cls):
    """Tacit's classes from which a class has what users see."""
    return [base for base in cls.__mro__ if base.__module__.partition(".")[0] == "tacit"]


def members(cls, bases):
    """Public methods with their parameters, and other values as ""."""
    found = {}
    for base in reversed(bases):
        for name in vars(base):
            if not name.startswith("_") or name == "__call__":
                held = inspect.getattr_static(cls, name)
                called = isinstance(held, staticmethod | classmethod) or inspect.isfunction(held)
                found[name] = parameters(getattr(cls, name)) if called else ""
    return dict(sorted(found.items()))


def described(value, elsewhere=()):
    """What can be done with a name; members of bases that are said ``elsewhere`` are left out."""
    if not inspect.isclass(value):
        return {"parameters": parameters(value)} if callable(value) else {}
    about = {
        "parameters": [] if issubclass(value, Exception) else parameters(value),
        "bases": sorted({base.__name__ for base in value.__mro__[1:]} - {"ABC", "object"}),
        "members": members(value, [b for b in own(value) if b is value or b not in elsewhere]),
        "fields": [f.name for f in dataclasses.fields(value)]
        if dataclasses.is_dataclass(value)
        else [],
    }
    return {part: said for part, said in about.items() if said or part == "parameters"}


def names():
    """{module: {name: what it is}}"""
    found, seen = {}, {}
    exported = [getattr(tacit, name) for name in tacit.__all__]
    for module in (*ROOMS, *DOCUMENTED):
        there, said = import_module(module), {}
        for name in sorted(DOCUMENTED.get(module) or there.__all__):
            value = getattr(there, name)
            known = seen.setdefault(id(value), f"{module}.{name}")
            new = known == f"{module}.{name}"
            said[name] = described(value, exported) if new else {"is": known}
        found[module] = said
    return found


def parser():
    """The parser of the command ``tacit``, caught when it is about to parse."""
    try:
        main = import_module("tacit.cli.main").main
    except ModuleNotFoundError:  # in 0.1.0 the command was one file
        main = import_module("tacit.cli").main

    class Caught(BaseException):
        pass

    def catch(self, *arguments, **options):
        raise Caught(self)

    with mock.patch.object(argparse.ArgumentParser, "parse_args", catch):
        try:
            main([])
        except Caught as caught:
            return caught.args[0]
    raise AssertionError("the command did not parse its arguments")


def commands(parser, path=()):
    """{command: its positional arguments and options}"""
    found, own = {}, []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                found |= commands(below, (*path, name))
        elif not isinstance(action, argparse._HelpAction | argparse._VersionAction):
            own.append(
                {
                    "name": action.dest,
                    "flags": action.option_strings,
                    "nargs": action.nargs,
                    "default": action.default,
                    "choices": action.choices and list(action.choices),
                    "required": action.required,
                    "type": getattr(action.type, "__name__", "str").strip("_"),
                }
            )
    return found | ({" ".join(path): own} if own else {})


def main():
    lines = [
        f'"{part}": {{\n'
        + ",\n".join(f'  "{name}": {json.dumps(about)}' for name, about in said.items())
        + "\n}"
        for part, said in {**names(), "commands": commands(parser())}.items()
    ]
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
