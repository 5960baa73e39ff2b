"""What is public: feasible sets and the projections onto them.

feasible_set    what every set can do: project, violation, diameter, radius
boxes           bounds on every coordinate
balls           Euclidean and L1 balls, simplex
half_spaces     half-spaces and hyperplanes, within bounds
products        blocks of variables, each in a set of its own
projections     the formulas of the above, for points of any size and in both number formats
powers          scaling by powers of two, exactly
conic           sets given by cone constraints, on which a solver projects
cones           second-order cones with linear constraints, and polyhedra, as conic sets
cvxpy_sets      a CVXPY model as a conic set
bounded         a proof, without a solver, that such a set is bounded
cone_program    the program that Clarabel solves, set up once and updated in place
radii           how far conic sets reach, by linear programs with certificates
quadratics      what cones and products of rows say about squares, for these programs
polish          the last digits of its answer
matrices        checked vectors and sparse matrices of these programs
"""

from tacit.sets.balls import Ball, L1Ball, Simplex
from tacit.sets.boxes import Box, NonNegative
from tacit.sets.cones import Cone, ConeSet, Polyhedron
from tacit.sets.conic import Conic
from tacit.sets.cvxpy_sets import from_cvxpy
from tacit.sets.feasible_set import FeasibleSet
from tacit.sets.half_spaces import HalfSpace, Hyperplane
from tacit.sets.products import Product

__all__ = [
    "Ball",
    "Box",
    "Cone",
    "ConeSet",
    "Conic",
    "FeasibleSet",
    "HalfSpace",
    "Hyperplane",
    "L1Ball",
    "NonNegative",
    "Polyhedron",
    "Product",
    "Simplex",
    "from_cvxpy",
]
