"""The problems of the zoo: densities of the kinds users have, each with exact or independent truth.

The defaults are chosen on the seen half and must then work on the unseen half, with no option set. Densities are JAX
functions of one state.
"""

from benchmarks.problems import seen, unseen
from benchmarks.problems.truth import ZooProblem

PROBLEMS: tuple[ZooProblem, ...] = (
    seen.ring(),
    seen.correlation(),
    seen.funnel(),
    seen.mode_lost(),
    seen.many_well(),
    seen.xy_chain(),
    seen.eight_schools(),
    seen.gaussian_process(),
    seen.pressure(),
    seen.curved(),
    unseen.student_t(),
    unseen.mueller_brown(),
    unseen.mode_gained(),
    unseen.bounded_prior(),
    unseen.gaussian_chain(),
    unseen.phi4(),
    unseen.ode(),
    unseen.alchemical(),
    unseen.logistic_regression(),
    unseen.tilted_well(),
)
