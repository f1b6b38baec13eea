"""How far each metric can be believed, from sets of models whose knowledge is known."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.benchmark.meta_models import Arrays, ModelSets
from lethe.metrics import Inputs, InvalidMetricInput
from lethe.metrics.core.array_catalogue import CaptureLevel
from lethe.metrics.core.metric_evaluation import checked_parameters, compute
from lethe.metrics.core.registry import Metric, Resampling, Scope, metrics

Int64 = NDArray[np.int64]
DRAWS = 8  # of each kind
QUARTER = 0.25
MIN_RESAMPLES = 20


@dataclass(frozen=True)
class Criteria:
    """One metric. Positions: 0 at exact retraining, 1 at the originals, at N / 2 models a side; NaN: not defined.

    power, power_quarter: share of draws whose runs are originals, all or a quarter of them, that lie beyond every
    calibrating draw of exact retraining. false_alarms: the same of other exact retraining. All of N / 4 models a side.
    drift: change of exact retraining's value from N / 8 to N models, in units of the distance to the originals at N.
    recipe: the position of the variation of the recipe that is furthest from 0. quantised: that of originals at 4 bits.
    relearning, quantisation, robustness: R, Q and their harmonic mean (arXiv:2506.12618) of the unlearned models; there
    is none where one of the two is not positive.
    games: positions of originals with changed outputs; game: the least. seconds: of one value at N / 2 models.
    worst: the least of power_quarter, 1 - false_alarms, 1 - |recipe|, game, each cut to [0, 1].
    """

    power: float
    power_quarter: float
    false_alarms: float
    drift: float
    recipe: float
    quantised: float
    relearning: float
    quantisation: float
    robustness: float
    games: Mapping[str, float]
    game: float
    values_by_n: Mapping[str, float]
    seconds: float
    worst: float


def judged_metrics() -> list[Metric]:
    """Return the metrics of one submission that outputs of classifiers are enough for; no interval is computed."""
    needed = {CaptureLevel.CONFIDENCES, CaptureLevel.LOSSES, CaptureLevel.LOGITS}
    left_out = {"epsilon", "wall_time_s", "recipe_confidences"}
    return [
        replace(entry, resampling=Resampling.NONE)
        for entry in metrics().values()
        if entry.scope == Scope.SUBMISSION
        and set(entry.levels) <= needed
        and not any(name in left_out for need in entry.needs.values() for name in need.array_names)
    ]


def judge(
    models: ModelSets, *, entries: Sequence[Metric] | None = None, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Criteria]:
    """Return the criteria of each metric. N, the number of models of each set, must be a multiple of 8."""
    values = _Values(models, judged_metrics() if entries is None else entries, progress)
    n_models = values.n_models
    quarter, half = n_models // 4, n_models // 2
    calibrating = [values.drawn(draw, first=True) for draw in range(DRAWS)]
    others = [values.drawn(draw) for draw in range(DRAWS)]
    known = [values.drawn(draw, share=1.0) for draw in range(DRAWS)]
    partly = [values.drawn(draw, share=QUARTER) for draw in range(DRAWS)]
    single = {name: values.of(models.sets[name], half) for name in models.sets if name != "retrained"}
    recipes = {name: values.of(arrays, half) for name, arrays in models.recipes.items()}
    changed = {name: values.of(arrays, half) for name, arrays in models.games.items()}
    by_n = {str(n): values.of(models.sets["unknown"], n) for n in (n_models // 8, quarter, half, n_models)}
    of_known = values.of(models.sets["known"], n_models)

    def criteria(name: str) -> Criteria:
        null = [found[name] for found in calibrating]
        alarms = _Alarms(null, [found[name] for found in known])
        start, end = single["unknown"][name], single["known"][name]

        def place(value: float) -> float:
            return (value - start) / (end - start) if end != start else float("nan")

        places = {key: place(found[name]) for key, found in single.items()}
        r, q = relearning_and_quantisation(places)
        of_games = {key: place(found[name]) for key, found in changed.items()}
        of_recipes = [place(found[name]) for found in recipes.values()]
        power_quarter = alarms.share([found[name] for found in partly])
        false_alarms = alarms.share([found[name] for found in others])
        recipe = max(of_recipes, key=abs) if np.isfinite(of_recipes).all() else float("nan")
        game = _least(list(of_games.values()))
        distance = of_known[name] - by_n[str(n_models)][name]
        drift = (by_n[str(n_models // 8)][name] - by_n[str(n_models)][name]) / distance if distance else float("nan")
        parts = (power_quarter, 1.0 - false_alarms, 1.0 - abs(recipe), game)
        return Criteria(
            power=alarms.share([found[name] for found in known]),
            power_quarter=power_quarter,
            false_alarms=false_alarms,
            drift=drift,
            recipe=recipe,
            quantised=places["known_quantised"],
            relearning=r,
            quantisation=q,
            robustness=2.0 * r * q / (r + q) if r > 0.0 and q > 0.0 else float("nan"),
            games=of_games,
            game=game,
            values_by_n={n: found[name] for n, found in by_n.items()},
            seconds=values.seconds[name] / max(values.n_timed, 1),
            worst=float(np.clip(_least(list(parts)), 0.0, 1.0)),
        )

    return {entry.id: criteria(entry.id) for entry in values.entries}


def relearning_and_quantisation(places: Mapping[str, float]) -> tuple[float, float]:
    """Return R = min(d_retrained / d_unlearned, 1) and Q = min(before / after, 1), on positions.

    d: what an epoch on the forget set adds to the position. Q is 1 where a quantised model is at or below 0. NaN where
    relearning moves the unlearned models nowhere. Neither is cut off below.
    Source: open-unlearning, arXiv:2506.12618, section 4.2.
    """
    moved = places["unlearned_relearned"] - places["unlearned"]
    relearning = min((places["fresh_relearned"] - places["fresh"]) / moved, 1.0) if moved else float("nan")
    before, after = places["unlearned"], places["unlearned_quantised"]
    if np.isnan(before) or np.isnan(after):
        return relearning, float("nan")
    return relearning, min(before / after, 1.0) if after > 0.0 else 1.0


def as_json(found: Mapping[str, Criteria], conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is written; NaN is null."""
    return {
        "conditions": dict(conditions),
        "metrics": {name: _without_nan(asdict(criteria)) for name, criteria in found.items()},
    }


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nan(part) for name, part in value.items()}
    return float(value) if np.isfinite(value) else None


def _least(values: Sequence[float]) -> float:
    return float(min(values)) if values and np.isfinite(values).all() else float("nan")


class _Alarms:
    """Whether a value lies beyond every calibrating value of exact retraining, on the side of the originals."""

    def __init__(self, null: Sequence[float], known: Sequence[float]) -> None:
        self.known = bool(np.isfinite(null).all() and np.isfinite(known).all())
        self.sign = np.sign(np.mean(known) - np.mean(null)) if self.known else 1.0
        self.limit = max(self.sign * value for value in null)

    def share(self, values: Sequence[float]) -> float:
        if not self.known or not np.isfinite(values).all():
            return float("nan")
        return float(np.mean([self.sign * value > self.limit for value in values]))


class _Values:
    """Values of all metrics of some models beside retrained ones."""

    def __init__(self, models: ModelSets, entries: Sequence[Metric], progress: Callable[[str], None]) -> None:
        self.models, self.entries, self.progress = models, list(entries), progress
        self.n_models = len(models.sets["retrained"]["confidences"])
        if self.n_models < 32 or self.n_models % 8:
            raise InvalidMetricInput(f"metrics are judged on a multiple of 8 models, 32 or more, not {self.n_models}")
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.n_timed = 0
        self._done = 0

    def of(self, subject: Arrays, n_models: int) -> dict[str, float]:
        """Return the metrics of the first models."""
        rows = np.arange(n_models)
        self.n_timed += n_models == self.n_models // 2
        return self._computed(_rows(subject, rows), rows, rows, timed=n_models == self.n_models // 2)

    def drawn(self, draw: int, *, share: float = 0.0, first: bool = False) -> dict[str, float]:
        """Return the metrics of N / 4 runs, a share of them originals, against as many retrained models.

        first: of the first halves of both sides, else of the second ones, which have no model in common with them.
        """
        half, size = self.n_models // 2, self.n_models // 4
        rng = np.random.default_rng([draw, int(first), round(100 * share)])
        start = 0 if first else half
        ours, theirs = (start + rng.permutation(half)[:size] for _ in range(2))
        n_known = round(share * size)
        known, unknown = (_rows(self.models.sets[name], ours) for name in ("known", "unknown"))
        mixed = {
            name: np.concatenate((known[name][:n_known], unknown[name][n_known:])).astype(unknown[name].dtype)
            for name in unknown
        }
        return self._computed(mixed, ours, theirs)

    def _computed(self, subject: Arrays, ours: Int64, theirs: Int64, *, timed: bool = False) -> dict[str, float]:
        sets = self.models.sets
        inputs = Inputs(
            unlearned=subject,
            retrained=_rows(sets["retrained"], theirs),
            oracle=_rows(sets["fresh"], theirs),
            original=_rows(sets["known"], ours),
            shared=self.models.shared,
        )
        found = {}
        for entry in self.entries:
            started = time.process_time()
            found[entry.id] = _value(inputs, entry)
            if timed:
                self.seconds[entry.id] += time.process_time() - started
        self._done += 1
        self.progress(f"all metrics of one set of runs: {self._done}")
        return found


def _rows(arrays: Arrays, rows: Int64) -> Arrays:
    return {name: array[rows] for name, array in arrays.items()}


def _value(inputs: Inputs, entry: Metric) -> float:
    fewer = {"n_resamples": MIN_RESAMPLES} if "n_resamples" in entry.defaults.model_fields else {}
    try:
        return float(compute(inputs, entry, checked_parameters(entry, fewer)).value)
    except (InvalidMetricInput, ValueError, ArithmeticError):  # some attacks fail on constant outputs: no value either
        return float("nan")
