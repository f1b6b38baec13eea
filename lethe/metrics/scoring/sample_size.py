"""What a number of models can show: the smallest shift that a test detects, and when a share of the oracle misleads."""

import math

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
