"""How well the model still answers what it must not forget."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import MetricResult
from lethe.metrics.text.harmonic_mean import harmonic_mean
from lethe.metrics.text.probabilities import answer_probabilities, option_probabilities
from lethe.metrics.text.truth_ratio import Mean, truth_preferred, truth_ratios

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
    Source: Maini et al. 2024 (TOFU), section 2.2.1.
    """
    stacked = {name: np.asarray(values) for name, values in arrays.items()}
    present = [name for name in UTILITY_SETS if stacked[f"{name}_answer_loss"].shape[-1]]
    runs = [
        {part: value for name in present for part, value in utility_parts(run, name, mean=mean).items()}
        for run in _runs(stacked)
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


def _runs(stacked: Arrays) -> list[Arrays]:
    n_runs = next(iter(stacked.values())).shape[0]
    return [{name: values[run] for name, values in stacked.items()} for run in range(n_runs)]


METRIC = Metric(
    id="model_utility",
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
