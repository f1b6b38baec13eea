"""`lethe.score`: the score of unlearned models against retrained ones, beside the oracle's and the original's."""

import warnings
from pathlib import Path

import numpy as np

from lethe.api.given_models import Models, arrays_of
from lethe.api.score_result import ScoreResult
from lethe.api.split import Split, as_split
from lethe.metrics.core.input_warnings import InputWarning, scale_warnings
from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.attacks.family import DEFAULT_ATTACKS, AttackFamily
from lethe.metrics.scoring.calibration import suspicion
from lethe.metrics.scoring.score import ModelOutputs, Score
from lethe.metrics.scoring.score import score as compute_score


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
