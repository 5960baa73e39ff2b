"""What is public: feasible sets and the projections onto them.

feasible_set    what every set can do: project, violation, diameter, radius
boxes           bounds on every coordinate; half-spaces and hyperplanes within them
balls           Euclidean and L1 balls, simplex
products        blocks of variables, each in a set of its own
projections     the formulas of the above, for points of any size and in both number formats
powers          scaling by powers of two, exactly
conic           sets given by cone constraints, on which a solver projects; polyhedra; from CVXPY
cone_program    the program that Clarabel solves, set up once and updated in place
radii           how far conic sets reach, by linear programs with certificates
"""

from tacit.sets.balls import Ball, L1Ball, Simplex
from tacit.sets.boxes import Box, HalfSpace, Hyperplane, NonNegative
from tacit.sets.conic import Cone, ConeSet, Conic, Polyhedron, from_cvxpy
from tacit.sets.feasible_set import FeasibleSet
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
