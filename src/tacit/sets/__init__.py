"""What is public: feasible sets and the projections onto them.

closed_forms    boxes, balls, simplices, half-spaces, products: sets with a projection formula
projections     those formulas, for points of any size and in both number formats
conic           sets given by cone constraints; a solver projects
cone_program    the program that Clarabel solves, set up once and updated in place
polish          the last digits of its answer
cvxpy_sets      a CVXPY model as a feasible set
"""

from tacit.sets.closed_forms import (
    Ball,
    Box,
    FeasibleSet,
    HalfSpace,
    Hyperplane,
    L1Ball,
    NonNegative,
    Product,
    Simplex,
)
from tacit.sets.conic import Cone, ConeSet, Conic, Polyhedron
from tacit.sets.cvxpy_sets import from_cvxpy

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
