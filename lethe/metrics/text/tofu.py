"""TOFU's two numbers: forget quality, a test of truth ratios, and model utility, a harmonic mean of nine."""

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import hmean, ks_2samp

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.text.answers import (
    Mean,
    answer_probabilities,
    finite_losses,
    option_probabilities,
    truth_preferred,
    truth_ratios,
)


def ks_p_value(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return the p-value of the hypothesis that both samples, shape (n,) and (m,), have one distribution.

    Exact up to 10,000 examples, asymptotic above. Raises InvalidMetricInput if a value is not finite.
    """
    return float(ks_2samp(finite_losses(first, "truth_ratio"), finite_losses(second, "truth_ratio")).pvalue)


def log10_p(p_value: float) -> float:
    """Return log10 of a p-value; one that is too small for a float counts as the smallest normal one."""
    return math.log10(max(p_value, sys.float_info.min))


def harmonic_mean(parts: Iterable[float]) -> float:
    """Return the harmonic mean; 0 if a part is 0. Raises InvalidMetricInput if a part is negative or there is none."""
    values = [float(part) for part in parts]
    if not values or not all(value >= 0 for value in values):
        raise InvalidMetricInput(f"a harmonic mean needs one or more numbers of at least 0, got {values}")
    if min(values) == 0:
        return 0.0
    return float(hmean(values))


GIBBERISH_NOTE = "a model that answers gibberish can pass this test: read it beside model utility"


def forget_quality(
    answer_loss: npt.ArrayLike,
    wrong_loss: npt.ArrayLike,
    retrained_answer_loss: npt.ArrayLike,
    retrained_wrong_loss: npt.ArrayLike,
) -> MetricResult:
    """Return log10 p of the exact two-sample Kolmogorov-Smirnov test of truth ratios, mean over pairs of runs; <= 0.

    Losses of paraphrased answers, shape (n_runs, n_examples), and of wrong ones, (n_runs, n_examples, n_wrong); run i
    is compared with retrained model i, or with each of them, and the mean is taken, where the numbers differ. Above
    log10(0.05) no difference is seen. table: p, the power of ten of the value; median_p, over the pairs. Of models
    that differ in nothing, p is spread evenly: its median is near 0.5, and p of the mean logarithm, which small ones
    rule, near 0.37.
    Raises InvalidMetricInput for shapes that do not fit or a loss that is not finite.
    """
    unlearned = truth_ratios(answer_loss, wrong_loss)
    retrained = truth_ratios(retrained_answer_loss, retrained_wrong_loss)
    paired = len(unlearned) == len(retrained)
    partners = (retrained[i : i + 1] if paired else retrained for i in range(len(unlearned)))
    pairs = zip(unlearned, partners, strict=True)
    per_run = np.array([np.mean([log10_p(ks_p_value(u, r)) for r in several]) for u, several in pairs])
    value = float(per_run.mean())
    table = {"p": 10**value, "median_p": float(np.median(10.0**per_run)), "n_examples": unlearned.shape[1]}
    return MetricResult(value, per_run=per_run, table=table, notes=(GIBBERISH_NOTE,))


FORGET_QUALITY = Metric(
    title="Forget quality",
    function=forget_quality,
    needs={
        "answer_loss": Need("forget_paraphrased_loss"),
        "wrong_loss": Need("forget_wrong_loss"),
        "retrained_answer_loss": Need("forget_paraphrased_loss", Side.RETRAINED),
        "retrained_wrong_loss": Need("forget_wrong_loss", Side.RETRAINED),
    },
    version=2,  # 2: median_p
    unit="log10 of a p-value",
    direction=Direction.HIGHER,
    paired=True,
    unequal_too=True,
    ideal=0.0,
    bounds=(-math.inf, 0.0),
    resampling=Resampling.RUNS,
    source="Maini et al. 2024 (2401.06121), section 2.2.2",
    formula="log10 p of KS(R_u, R_r), R = exp(loss of the paraphrased answer - mean loss of the wrong ones)",
    paper_and_code="Equations 8-9 are asymptotic; all printed p-values are exact, of 300 examples (not 400) for 10 %.",
)


UTILITY_SETS = ("retain", "real_authors", "world_facts")
UTILITY_ARRAYS = ("answer_loss", "paraphrased_loss", "wrong_loss", "rouge_recall")
WITHOUT_PRETRAINING = "n/a without pretraining"

Arrays = Mapping[str, npt.NDArray[Any]]


class ModelUtilityParameters(Parameters):
    """mean: over the wrong answers' probabilities, in the truth ratio."""

    mean: Mean = "geometric"


def utility_parts(arrays: Arrays, set_name: str, *, mean: Mean = "geometric") -> dict[str, float]:
    """Return probability, ROUGE recall and truth ratio of one model on one set of questions, each in [0, 1].

    arrays: `<set_name>_<name>` for the names of UTILITY_ARRAYS, without a run axis. The probability is that of the
    answer on the retain set, and its share among the options on the other two, as in TOFU's program.
    """
    loss, paraphrased, wrong, rouge = (arrays[f"{set_name}_{name}"] for name in UTILITY_ARRAYS)
    probabilities = answer_probabilities(loss) if set_name == "retain" else option_probabilities(loss, wrong)
    return {
        f"{set_name}_rouge": float(np.mean(rouge)),
        f"{set_name}_probability": float(probabilities.mean()),
        f"{set_name}_truth_ratio": float(truth_preferred(truth_ratios(paraphrased, wrong, mean=mean)).mean()),
    }


def model_utility(*, mean: Mean = "geometric", **arrays: npt.ArrayLike) -> MetricResult:
    """Return the harmonic mean of three numbers on three sets of questions, in [0, 1].

    arrays: `retain_answer_loss` and so on, shape (n_runs, n) or (n_runs, n, n_wrong). A network that was not
    pretrained knows no real authors and no facts about the world: such sets are given empty, the value is NaN, and
    `retain_utility` in the table is the harmonic mean of the retain set's three.
    Raises InvalidMetricInput for a loss that is not finite.
    """
    stacked = {name: np.asarray(values) for name, values in arrays.items()}
    present = [name for name in UTILITY_SETS if stacked[f"{name}_answer_loss"].shape[-1]]
    each_run = (
        {name: values[i] for name, values in stacked.items()} for i in range(len(stacked["retain_answer_loss"]))
    )
    runs = [
        {part: value for name in present for part, value in utility_parts(run, name, mean=mean).items()}
        for run in each_run
    ]
    table = {part: float(np.mean([run[part] for run in runs])) for part in runs[0]}
    if "retain" in present:
        retain = [harmonic_mean(value for part, value in run.items() if part.startswith("retain_")) for run in runs]
        table["retain_utility"] = float(np.mean(retain))
    if len(present) < len(UTILITY_SETS):
        missing = ", ".join(name.replace("_", " ") for name in UTILITY_SETS if name not in present)
        return MetricResult(float("nan"), table=table, notes=(f"{WITHOUT_PRETRAINING}: {missing}",))
    per_run = np.array([harmonic_mean(run.values()) for run in runs])
    return MetricResult(float(per_run.mean()), per_run=per_run, table=table)


MODEL_UTILITY = Metric(
    title="Model utility",
    function=model_utility,
    needs={f"{name}_{array}": Need(f"{name}_{array}") for name in UTILITY_SETS for array in UTILITY_ARRAYS},
    unit="harmonic mean",
    direction=Direction.HIGHER,
    defaults=ModelUtilityParameters,
    bounds=(0.0, 1.0),
    resampling=Resampling.RUNS,
    source="Maini et al. 2024 (2401.06121), section 2.2.1",
    formula="9 / sum over {retain, real authors, world facts} x {probability, ROUGE-L, truth ratio} of 1/part",
    paper_and_code="Equation 1 has the arithmetic mean over wrong answers, the leaderboard the geometric (default).",
)
