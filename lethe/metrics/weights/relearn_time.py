"""How long the forget set takes to be learnt again, against a model that never knew it."""

from pydantic import Field

from lethe.metrics.core.arrays import Float64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Parameters, Resampling, both_sides
from lethe.metrics.core.result import MetricResult


class RelearnTimeParameters(Parameters):
    """max_epochs: where the probe stopped; a model that needed more is counted with this number."""

    max_epochs: int = Field(100, ge=1)


def relearn_time(unlearned: Float64, retrained: Float64, *, max_epochs: int = 100) -> MetricResult:
    """Return mean epochs of the unlearned over those of the retrained models; 1 is ideal, below it knowledge is left.

    unlearned, retrained: epochs of training on the forget set alone until its mean loss is back within 5 % of the
    original model's, shape (k,) each; 0 if it is there from the start, at most max_epochs.
    per_run: epochs of each unlearned model over the mean of the retrained ones. table: means and the numbers of
    censored models. NaN if every retrained model needs 0 epochs.
    Raises InvalidMetricInput for epochs above max_epochs.
    Source: Golatkar et al. 2020; Goel et al. 2022, table 1.
    """
    u, r = (_within(epochs, max_epochs) for epochs in (unlearned, retrained))
    censored = {side: int((epochs >= max_epochs).sum()) for side, epochs in (("unlearned", u), ("retrained", r))}
    table: dict[str, float] = {"unlearned": float(u.mean()), "retrained": float(r.mean())}
    table |= {f"{side}_censored": number for side, number in censored.items()}
    notes = [f"{number} {side} models did not relearn in time" for side, number in censored.items() if number]
    if r.mean() == 0.0:
        notes.append("the retrained models know the forget set from the start: no ratio")
        return MetricResult(float("nan"), table=table, notes=tuple(notes))
    return MetricResult(float(u.mean() / r.mean()), per_run=u / r.mean(), table=table, notes=tuple(notes))


def _within(epochs: Float64, max_epochs: int) -> Float64:
    if epochs.max() > max_epochs:
        raise InvalidMetricInput(f"relearn epochs must be within [0, {max_epochs}], not {epochs.max():g}")
    return epochs


METRIC = Metric(
    id="relearn_time",
    title="Relearn time",
    function=relearn_time,
    needs=both_sides("relearn_epochs"),
    unit="times the retrained models'",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=RelearnTimeParameters,
    bounds=(0.0, float("inf")),
    ideal=1.0,
    resampling=Resampling.MODELS,
    version=2,
    source="Golatkar et al. 2020 (1911.04933); Goel et al. 2022 (2201.06640), table 1; SCRUB (2302.09880)",
    formula="mean_i epochs(u_i) / mean_j epochs(r_j) until the loss on the forget set is within 5 % of the original's",
    paper_and_code="Epochs are censored at 100; the learning rate is a tenth of the training's.",
)
