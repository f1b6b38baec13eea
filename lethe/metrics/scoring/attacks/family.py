"""Names and default of the attack families, constants of the published metric, and what a number of models can show."""

import math
from enum import StrEnum

FEW_MODELS = 64
NORMAL_QUANTILES = 1.959963984540054 + 0.8416212335729143  # two-sided 5 %, power 80 %


def smallest_detectable_shift(n_models: int) -> float:
    """Return the shift of one example's confidences that N models a side detect, in standard deviations of one model.

    Two-sided test at 5 % with power 80 % for two normal samples of N: 2.8 sqrt(2 / N).
    """
    return NORMAL_QUANTILES * math.sqrt(2.0 / n_models)


def few_models_warnings(n_models: int) -> list[str]:
    """Return a sentence where so few models make a score flattering, or none."""
    if n_models >= FEW_MODELS:
        return []
    return [
        f"N = {n_models} is below {FEW_MODELS}: a shift of an example below "
        f"{smallest_detectable_shift(n_models):.2f} standard deviations is not detected, and a share of the oracle is "
        "larger than it would be with more models; compare scores of the same N only (the metric equivalent_shift does "
        "not depend on N)"
    ]


SCORER_VERSION = "1"
"""Stored with every score; raised when any number that the scorer gives changes."""
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
