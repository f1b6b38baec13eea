"""Whether the truth ratios on the forget set are those of a model that never saw it."""

import math

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.registry import Direction, Metric, Need, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.text.kolmogorov_smirnov import ks_p_value, log10_p
from lethe.metrics.text.truth_ratio import truth_ratios

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
    Source: Maini et al. 2024 (TOFU), section 2.2.2.
    """
    unlearned = truth_ratios(answer_loss, wrong_loss)
    retrained = truth_ratios(retrained_answer_loss, retrained_wrong_loss)
    per_run = _log_p_by_run(unlearned, retrained)
    value = float(per_run.mean())
    table = {"p": 10**value, "median_p": float(np.median(10.0**per_run)), "n_examples": unlearned.shape[1]}
    return MetricResult(value, per_run=per_run, table=table, notes=(GIBBERISH_NOTE,))


def _log_p_by_run(unlearned: Float64, retrained: Float64) -> Float64:
    paired = len(unlearned) == len(retrained)
    partners = (retrained[i : i + 1] if paired else retrained for i in range(len(unlearned)))
    pairs = zip(unlearned, partners, strict=True)
    return np.array([np.mean([log10_p(ks_p_value(u, r)) for r in several]) for u, several in pairs])


METRIC = Metric(
    id="forget_quality",
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
