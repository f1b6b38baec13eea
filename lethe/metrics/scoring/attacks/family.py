"""The names of the attack families and the constants of the published metric."""

from enum import StrEnum

DELTA = 1e-5
EPSILON_CAP = 50.0


class AttackFamily(StrEnum):
    """How decision rules between unlearned and retrained outputs are chosen and judged.

    REFERENCE: the grids of thresholds of the published program, bit for bit.
    EXACT: every threshold and every interval between observed values; no grid, no scale.
    DISENTANGLED: a rule fitted on one half of the models and judged on the smoothed other half (paper, A.13).
    """

    REFERENCE = "reference"
    EXACT = "exact"
    DISENTANGLED = "disentangled"
