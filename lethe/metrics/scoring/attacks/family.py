"""The names of the attack families, which of them is the default, and the constants of the published metric."""

import math
from enum import StrEnum

DELTA = 1e-5
EPSILON_CAP = 50.0
HONEST_DISAGREEMENT = 0.15
"""By how much of the oracle's F a published family at most gives more than crossfit, of honest entries."""


class AttackFamily(StrEnum):
    """How decision rules between unlearned and retrained outputs are chosen and judged.

    CROSSFIT: fitted on one half of the models and judged on the other; the participant sets nothing. The default.
    REFERENCE: the grids of thresholds of the published program, bit for bit: as in 2023.
    EXACT: every threshold and every interval between observed values; no grid, no scale.
    DISENTANGLED: a rule fitted on one half of the models and judged on the smoothed other half (paper, A.13).
    """

    CROSSFIT = "crossfit"
    REFERENCE = "reference"
    EXACT = "exact"
    DISENTANGLED = "disentangled"

    @property
    def is_published(self) -> bool:
        """Whether it is one of the paper's, which an entry that unlearns nothing can win."""
        return self is not AttackFamily.CROSSFIT

    @property
    def largest_ratio(self) -> float:
        """What a utility ratio counts as at most, and so a score: 1; in the published families there is no bound."""
        return math.inf if self.is_published else 1.0

    @property
    def divides_models(self) -> bool:
        """Whether rules are fitted and judged on different halves, so that 4 models a side are needed."""
        return self in (AttackFamily.CROSSFIT, AttackFamily.DISENTANGLED)


DEFAULT_ATTACKS = AttackFamily.CROSSFIT
MIN_MODELS_DIVIDED = 4
