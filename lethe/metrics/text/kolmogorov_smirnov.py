"""Two-sample Kolmogorov-Smirnov test of truth ratios.

Source: Maini et al. 2024 (TOFU), section 2.2.2. Equations 8 and 9 of its appendix are the asymptotic form; all p-values
that the paper prints are those of the exact test, and so are these.
"""

import math
import sys

import numpy.typing as npt
from scipy.stats import ks_2samp

from lethe.metrics.text.losses import finite_losses


def ks_p_value(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return the p-value of the hypothesis that both samples, shape (n,) and (m,), have one distribution.

    Exact up to 10,000 examples, asymptotic above. Raises InvalidMetricInput if a value is not finite.
    """
    return float(ks_2samp(finite_losses(first, "truth_ratio"), finite_losses(second, "truth_ratio")).pvalue)


def log10_p(p_value: float) -> float:
    """Return log10 of a p-value; one that is too small for a float counts as the smallest normal one."""
    return math.log10(max(p_value, sys.float_info.min))
