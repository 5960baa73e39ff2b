"""What is public: feasible sets and the projections onto them.

feasible_set    what every set can do: project, violation, diameter, radius
closed_form     boxes, half-spaces, balls, the simplex, products, and their projections
conic           sets given by cone constraints, on which a solver projects; polyhedra; from CVXPY
cone_program    the program that Clarabel solves, set up once and updated in place
radii           how far conic sets reach, by linear programs with certificates
"""

from tacit.sets.closed_form import (
    Ball,
    Box,
    HalfSpace,
    Hyperplane,
    L1Ball,
    NonNegative,
    Product,
    Simplex,
)
from tacit.sets.conic import Cone, ConeSet, Conic, Polyhedron, from_cvxpy
from tacit.sets.feasible_set import FeasibleSet

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
