"""`lethe.score`: the score of unlearned models against retrained ones, beside its references, and its result."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.api.method_runs import Models, arrays_of
from lethe.api.split import Split, as_split
from lethe.metrics.core.input_warnings import InputWarning, scale_warnings
from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.attacks.family import DEFAULT_ATTACKS, AttackFamily
from lethe.metrics.scoring.calibration import Suspicion, calibrate, suspicion
from lethe.metrics.scoring.score import ModelOutputs, Score
from lethe.metrics.scoring.score import score as compute_score
from lethe.reports.table import html_table, json_text, written

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COLUMNS = ("models", "score", "low", "high", "forgetting_quality", "retain_ratio", "test_ratio")


@dataclass(frozen=True, eq=False, repr=False)
class ScoreResult:
    """A score with its references.

    score: of the unlearned models. oracle, original: the same of these models, None where they were not given.
    signs: whether runs repeat each other or a retrained model. unlearned, retrained: what was compared.
    """

    score: Score
    oracle: Score | None
    original: Score | None
    signs: Suspicion
    unlearned: ModelOutputs
    retrained: ModelOutputs
    warnings: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        """Return the final score, or F where utility was not measured."""
        return self.score.headline

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the 95 % interval of `value`, None without resamples."""
        return self.score.interval

    @property
    def share_of_oracle(self) -> float | None:
        """Return `value` as a share of the oracle's; None without an oracle, or where the oracle's is 0."""
        return None if self.oracle is None or self.oracle.headline <= 0 else self.value / self.oracle.headline

    def as_json(self) -> dict[str, Any]:
        """Return what `lethe score --json` prints, without its warnings."""
        signs = ("repeated_runs", "copied_models", "deterministic", "copied")
        found = self.score.as_json() | {name: getattr(self.signs, name) for name in signs}
        if self.oracle is None:
            return found
        found |= {
            "oracle_forgetting_quality": self.oracle.forgetting_quality,
            "oracle_score": self.oracle.headline,
            "share_of_oracle": self.share_of_oracle,
        }
        if self.score.replicates is None:
            return found
        calibration = calibrate(self.score, self.oracle)
        return found | {
            "oracle_interval": None if self.oracle.interval is None else list(self.oracle.interval),
            "fraction_of_oracle": calibration.fraction,
            "fraction_interval": list(calibration.interval),
            "leaked": calibration.leaked,
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the result as JSON, and write it to a file if one is named. docs/schemas/score.json describes it."""
        return written(json_text(self.as_json() | {"warnings": list(self.warnings)}), path)

    def to_frame(self) -> "pd.DataFrame":
        """Return a data frame with a row for unlearned, oracle and original models. Needs pandas."""
        import pandas as pd

        return pd.DataFrame([_row(name, score) for name, score in self._scores()], columns=list(COLUMNS))

    def plot(self) -> "Figure":
        """Return a figure of epsilon and of the hardest and the easiest example. Needs the extra `plots`."""
        from lethe.reports.benchmark_figures import draw_score

        return draw_score(self.score, self.unlearned, self.retrained)

    def _scores(self) -> list[tuple[str, Score]]:
        given = {"unlearned": self.score, "oracle": self.oracle, "original": self.original}
        return [(name, score) for name, score in given.items() if score is not None]

    def __repr__(self) -> str:
        share = "" if self.share_of_oracle is None else f", {self.share_of_oracle:.1%} of the oracle's"
        return f"ScoreResult({self.value:.4g}{_ends(self.interval)}{share}, n_models={self.score.n_models})"

    def _repr_html_(self) -> str:
        rows = [
            (name, f"{one.headline:.4g}", _ends(one.interval).strip(), f"{one.forgetting_quality:.4g}")
            for name, one in self._scores()
        ]
        return html_table(("models", "score", "95 %", "F"), rows)


def _row(name: str, score: Score) -> tuple[Any, ...]:
    ends = (None, None) if score.interval is None else score.interval
    return name, score.headline, *ends, score.forgetting_quality, score.retain_ratio, score.test_ratio


def _ends(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" [{interval[0]:.4g}, {interval[1]:.4g}]"


def score(
    unlearned: Models,
    retrained: Models | None = None,
    *,
    oracle: Models | None = None,
    original: Models | None = None,
    split: Split | str | Path | None = None,
    attacks: str = DEFAULT_ATTACKS,
    n_resamples: int = 0,
    seed: int = 0,
    device: str = "cpu",
    progress: bool | None = None,
) -> ScoreResult:
    """Return forgetting quality F, and the final score where accuracies of both sides are given.

    Models are given as for `lethe.evaluate`: confidences, shape (n_models, n_examples), log(p / (1 - p)) of the right
    class; or arrays by name with `retain_accuracy` and `test_accuracy`, shape (n_models,), in [0, 1]; a file of them;
    and with a split a folder of checkpoints, torch modules or `lethe.MethodRuns`. oracle: other retrained models.
    original: one model, or one a run. attacks: crossfit, or as in 2023 reference, exact or disentangled.
    n_resamples: of the 95 % interval, 0 for none. seed: of the resamples and of the halves of the models.
    Raises InvalidScoreInput naming array, model and example. Warns (InputWarning) of values of another scale.
    Source: Triantafillou et al. 2024, equation 2 and algorithm 1.
    """
    chosen = None if split is None else as_split(split)
    given = {"unlearned": unlearned, "retrained": retrained, "oracle": oracle, "original": original}
    sides = {
        side: _outputs(models, side=side, split=chosen, device=device, progress=progress)
        for side, models in given.items()
        if models is not None
    }
    if chosen is not None:
        sides = {
            side: chosen.outputs(side) for side in ("retrained", "oracle", "original") if side not in sides
        } | sides
    if "retrained" not in sides:
        raise InvalidScoreInput("nothing to compare with: give `retrained`, or a prepared `split`")
    result = score_outputs(
        sides["unlearned"],
        sides["retrained"],
        oracle=sides.get("oracle"),
        original=sides.get("original"),
        attacks=_family(attacks),
        n_resamples=n_resamples,
        seed=seed,
    )
    for text in result.warnings:
        warnings.warn(text, InputWarning, stacklevel=2)
    return result


def score_outputs(
    unlearned: ModelOutputs,
    retrained: ModelOutputs,
    *,
    oracle: ModelOutputs | None = None,
    original: ModelOutputs | None = None,
    attacks: AttackFamily,
    n_resamples: int,
    seed: int,
) -> ScoreResult:
    """Return the score of outputs, with its references. A single original model stands for as many copies.

    Raises InvalidScoreInput.
    """

    def against_retrained(outputs: ModelOutputs) -> Score:
        return compute_score(outputs, retrained, attacks=attacks, n_resamples=n_resamples, seed=seed)

    return ScoreResult(
        score=against_retrained(unlearned),
        oracle=None if oracle is None else against_retrained(oracle),
        original=None if original is None else against_retrained(_copies(original, len(retrained.confidences))),
        signs=suspicion(unlearned.confidences, retrained.confidences),
        unlearned=unlearned,
        retrained=retrained,
        warnings=tuple(scale_warnings(np.asarray(unlearned.confidences), np.asarray(retrained.confidences))),
    )


def _copies(outputs: ModelOutputs, n_models: int) -> ModelOutputs:
    arrays = {name: values for name, values in vars(outputs).items() if values is not None}
    if len(arrays["confidences"]) != 1:
        return outputs
    return ModelOutputs(**{name: np.repeat(values, n_models, axis=0) for name, values in arrays.items()})


def _family(name: str) -> AttackFamily:
    try:
        return AttackFamily(name)
    except ValueError as error:
        raise InvalidScoreInput(f"there are no attacks {name!r}; there are {', '.join(AttackFamily)}") from error


def _outputs(given: Models, *, side: str, split: Split | None, device: str, progress: bool | None) -> ModelOutputs:
    if isinstance(given, ModelOutputs):
        return given
    arrays = arrays_of(given, side=side, split=split, device=device, progress=progress)
    if "confidences" not in arrays:
        raise InvalidScoreInput(
            f"the {side} models have no array `confidences`, only {', '.join(sorted(arrays)) or 'nothing'}", side=side
        )
    return ModelOutputs(arrays["confidences"], arrays.get("retain_accuracy"), arrays.get("test_accuracy"))
