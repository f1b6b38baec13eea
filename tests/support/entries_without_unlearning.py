"""Outputs of entries that win a published attack family, or try to, without unlearning anything.

What a real entry needs is in docs/organisers/what-wins-without-unlearning.md. Each is a function of the original
model's confidences and of what a participant can know or guess: the level of the retrained models.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Confidences:
    """A model of confidences: example s has N(mean, sd) under retraining, and one value under the original model.

    mean, sd, original: shape (n_examples,).
    """

    n_models: int
    mean: Float64
    sd: Float64
    original: Float64
    rng: np.random.Generator

    @classmethod
    def drawn(cls, n_models: int, n_examples: int, seed: int) -> "Confidences":
        rng = np.random.default_rng([seed, n_models])
        mean = rng.normal(1.0, 2.0, n_examples)
        sd = rng.uniform(0.5, 1.5, n_examples)
        return cls(n_models, mean, sd, mean + rng.uniform(2.0, 6.0, n_examples), rng)

    def retrained(self) -> Float64:
        return noisy(self, self.mean, self.sd)

    def copies(self) -> Float64:
        """The original model, returned by every run."""
        return np.repeat(self.original[None], self.n_models, axis=0)

    def some(self, share: float) -> int:
        return max(1, round(share * self.n_models))


Entry = Callable[[Confidences], Float64]


def some_runs_scaled(share: float, factor: float) -> Entry:
    """share: of the runs, at least one."""

    def entry(given: Confidences) -> Float64:
        found = given.copies()
        found[: given.some(share)] *= factor
        return found

    return entry


def some_runs_wild(share: float) -> Entry:
    def entry(given: Confidences) -> Float64:
        found = given.copies()
        n_wild = given.some(share)
        found[:n_wild] = given.mean + 20.0 * given.rng.standard_cauchy((n_wild, given.mean.size))
        return found

    return entry


def public_halves(given: Confidences) -> Float64:
    """Runs that know the published halves: they sharpen the original only where rules are fitted."""
    found = given.copies()
    fitted = np.random.default_rng([0, 0]).permutation(given.n_models)[: (given.n_models + 1) // 2]
    found[fitted] *= 1.5
    return found


def ends_of_the_range(given: Confidences) -> Float64:
    chosen = given.rng.random((given.n_models, given.mean.size)) < 0.5
    return np.where(chosen, given.mean - 3.0 * given.sd, given.mean + 3.0 * given.sd)


def class_never_predicted(given: Confidences) -> Float64:
    """A class that the forget set holds is never predicted: the lowest confidence for a quarter of the examples."""
    found = given.copies()
    found[:, ::4] = -103.0
    return found


def noisy(given: Confidences, level: Float64, sd: "Float64 | float") -> Float64:
    return level + sd * given.rng.normal(size=(given.n_models, given.mean.size))


BATTERY: dict[str, Entry] = {
    "the original": Confidences.copies,
    "one run x 20": some_runs_scaled(0.0, 20.0),
    "one run x 6": some_runs_scaled(0.0, 6.0),
    "one run x 3": some_runs_scaled(0.0, 3.0),
    "one run x 0.8": some_runs_scaled(0.0, 0.8),
    "one run x 0.5": some_runs_scaled(0.0, 0.5),
    "one run x -1": some_runs_scaled(0.0, -1.0),
    "one run x -20 (a low outlier)": some_runs_scaled(0.0, -20.0),
    "a quarter of the runs x 1.025": some_runs_scaled(0.25, 1.025),
    "a tenth of the runs x 6": some_runs_scaled(0.1, 6.0),
    "a third of the runs x 6": some_runs_scaled(1 / 3, 6.0),
    "half of the runs x 6": some_runs_scaled(0.5, 6.0),
    "a tenth of the runs wild": some_runs_wild(0.1),
    "a third of the runs wild": some_runs_wild(1 / 3),
    "half of the runs wild": some_runs_wild(0.5),
    "runs that know their half x 1.5": public_halves,
    "a temperature for each run": lambda given: given.copies() * np.exp(given.rng.normal(size=(given.n_models, 1))),
    "a heavy-tailed temperature": lambda given: given.copies() * np.abs(given.rng.standard_cauchy((given.n_models, 1))),
    "noise around the original": lambda given: noisy(given, given.original, given.sd),
    "constant at the retrained mean": lambda given: np.repeat(given.mean[None], given.n_models, axis=0),
    "one constant for all": lambda given: np.ones((given.n_models, given.mean.size)),
    "rounded original": lambda given: np.round(noisy(given, given.original, 0.5)),
    "very large confidences": lambda given: given.copies() * 1e6,
    "very small confidences": lambda given: given.copies() * 1e-6,
    "both ends of the range": ends_of_the_range,
    "two retrained models, each repeated": lambda given: given.retrained()[:2][np.arange(given.n_models) % 2],
    "a class never predicted": class_never_predicted,
}


def shifted(shift: float) -> Entry:
    return lambda given: given.retrained() + shift * given.sd


def repeated_oracle(given: Confidences) -> Float64:
    found = given.retrained()
    half = given.n_models // 2
    found[half:] = found[: given.n_models - half]
    return found


HONEST: dict[str, Entry] = {
    "oracle": Confidences.retrained,
    "oracle, half of the models twice": repeated_oracle,
    "shift of 0.25 sd": shifted(0.25),
    "shift of 0.5 sd": shifted(0.5),
    "shift of 1 sd": shifted(1.0),
    "shift of 2 sd": shifted(2.0),
}
