"""Two sets of confidences and the epsilon between them, for the picture that explains the score.

The retrained models' confidences in one example are drawn as a normal distribution, the unlearned models' as the same
one moved to the right. Epsilon is that of the best single threshold over as many values of each as there are runs.
Error rates have a floor where the competition's attacks give them one; the published ones discard a rate of 0.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from json import dumps
from math import ceil, exp, floor, inf, log
from statistics import NormalDist

MAX_SHIFT, STEPS = 3.0, 30  # in standard deviations
BUCKET = 0.5  # nats; as in lethe.metrics.scoring.forgetting_quality, which needs more than the web server has
FLOOR = 0.02  # an error rate counts as no less; as in lethe.metrics.scoring.attacks.crossfit
FROM, TO = -3.5, 6.5  # of the axis, in standard deviations
WIDTH, BASE, TOP = 600, 150, 20  # of the drawing
SHOWN_FIRST = 10
MAX_DRAWN = 512  # models on each side


@dataclass(frozen=True)
class Separation:
    """How well one threshold tells two distributions apart. threshold_x: where it stands in the drawing."""

    shift: float
    epsilon: float
    points: float
    threshold_x: float

    @property
    def offset(self) -> float:
        """How far the moved curve stands from the other in the drawing."""
        return round(self.shift * WIDTH / (TO - FROM), 1)


@lru_cache(maxsize=64)
def separations(n_models: int, delta: float, lowest_rate: float = 0.0) -> tuple[Separation, ...]:
    """Return the picture at every step of the slider. Of more than 512 models on each side, 512 are drawn."""
    drawn = min(n_models, MAX_DRAWN)
    shifts = (MAX_SHIFT * step / STEPS for step in range(STEPS + 1))
    return tuple(separation(shift, drawn, delta=delta, lowest_rate=lowest_rate) for shift in shifts)


def as_json(shown: tuple[Separation, ...]) -> str:
    """Return what the slider's script shows at each step: offset, threshold, and epsilon and points as text."""
    return dumps([[one.offset, one.threshold_x, f"{one.epsilon:.2f}", f"{one.points:.3f}"] for one in shown])


def separation(shift: float, n_models: int, *, delta: float, lowest_rate: float = 0.0) -> Separation:
    """Return epsilon by its definition: the largest over all thresholds at which both kinds of error happen.

    lowest_rate: what each kind's rate counts as at least, so that it always happens; 0 for the published attacks.
    """
    normal = NormalDist()
    retrained = [normal.inv_cdf((index + 0.5) / n_models) for index in range(n_models)]
    unlearned = [value + shift for value in retrained]
    best, where = 0.0, shift / 2
    for threshold in (*retrained, *unlearned):
        wrongly_unlearned = max(1 - bisect_right(retrained, threshold) / n_models, lowest_rate)
        wrongly_retrained = max(bisect_right(unlearned, threshold) / n_models, lowest_rate)
        found = max(
            _nats(wrongly_unlearned, wrongly_retrained, delta), _nats(wrongly_retrained, wrongly_unlearned, delta)
        )
        if found > best + 1e-9:
            best, where = found, threshold
    return Separation(shift, best, points(best, n_models), round(_x(where), 1))


def points(epsilon: float, n_models: int) -> float:
    """Return what one example earns: 1 below half a nat, half as much with each half nat more, nothing at the end."""
    bucket = floor(epsilon / BUCKET)
    return 2.0**-bucket if bucket < int(ceil(log(n_models - 1)) / BUCKET) else 0.0


@lru_cache
def curve() -> str:
    """Return the SVG path of the distribution that does not move."""
    xs = [FROM + (7.0 * step) / 70 for step in range(71)]
    line = "L".join(f"{_x(x):.0f} {BASE - (BASE - TOP) * exp(-x * x / 2):.1f}" for x in xs)
    return f"M{_x(xs[0]):.0f} {BASE}L{line}L{_x(xs[-1]):.0f} {BASE}Z"


def _x(value: float) -> float:
    return (value - FROM) / (TO - FROM) * WIDTH


def _nats(one: float, other: float, delta: float) -> float:
    return log((1 - delta - one) / other) if one > 0 and other > 0 and 1 - delta > one else -inf
