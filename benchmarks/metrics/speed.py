"""Time of metrics against literal transcriptions, as ratios within one run: `python -m benchmarks.metrics.speed`."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from lethe.metrics.attacks.scalar_attack import attack_accuracy
from lethe.metrics.attacks.softmax_attack import softmax_attack_percent
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.softmax import log_margin, loss_of_logits, softmax
from lethe.metrics.outputs.histograms import output_histograms
from lethe.metrics.outputs.klom import binned_divergence
from lethe.metrics.outputs.predictions import activation_l2, js_to_retrained, zrf_per_model
from tests.lethe.metrics import literal

N, S, T, C = 64, 500, 2000, 10
Work = Callable[[], object]


def draw(n_examples: int, *, seed: int, strength: float) -> tuple[Float64, Int64]:
    """Return outputs of N models, shape (N, n_examples, C), and the labels, which have the greatest mean output."""
    difficulty = np.random.default_rng([7, n_examples])
    mean = difficulty.normal(size=(n_examples, C))
    labels = difficulty.integers(0, C, n_examples, dtype=np.int64)
    mean[np.arange(n_examples), labels] += strength
    return mean + np.random.default_rng(seed).normal(size=(N, n_examples, C)), labels


def seconds(work: Work, *, repeats: int) -> float:
    """Return the shortest time of `work` after one call that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def report(name: str, ours: Work, theirs: Work | None, note: str = "") -> None:
    """Print one metric's time and how many times faster it is than the transcription."""
    mine = seconds(ours, repeats=5)
    if theirs is None:
        print(f"  {name:22} {mine * 1e3:10.2f} ms")
        return
    other = seconds(theirs, repeats=1)
    print(f"  {name:22} {mine * 1e3:10.2f} ms   literal {other * 1e3:10.1f} ms   {other / mine:8.1f} x   {note}")


def main() -> None:
    """Print the times of all."""
    forget, labels = draw(S, seed=1, strength=3.0)
    retrained, _ = draw(S, seed=2, strength=3.0)
    test, test_labels = draw(T, seed=3, strength=2.5)
    margins = log_margin(forget, labels), log_margin(retrained, labels)
    losses = loss_of_logits(forget, labels), loss_of_logits(test, test_labels)
    p, r, t = softmax(forget), softmax(retrained), softmax(test)
    untrained = softmax(0.1 * np.random.default_rng(4).normal(size=(5, S, C)))
    attack = partial(attack_accuracy, *losses, n_splits=10, test_share=0.1, seed=123)
    softmax_attack = partial(softmax_attack_percent, p, t, task=1, n_splits=1, test_share=0.2, seed=0)
    print(f"N = {N}, S = {S}, T = {T}, C = {C}")
    equal = np.array_equal(binned_divergence(*margins), literal.klom(*margins))
    report("klom", partial(binned_divergence, *margins), partial(literal.klom, *margins), f"equal to the bit: {equal}")
    gap = float(np.abs(attack() - literal.loss_attack(*losses)).max())
    note = f"greatest difference {gap:.3f}: other draws"
    report("mia_loss", attack, partial(literal.loss_attack, *losses), note)
    report("mia_forget_test", softmax_attack, partial(literal.softmax_attack, p, t))
    gap = float(np.abs(zrf_per_model(p, untrained) - literal.zrf(p, untrained)).max())
    report("zrf", partial(zrf_per_model, p, untrained), partial(literal.zrf, p, untrained), f"difference {gap:.1e}")
    thresholds = partial(literal.output_thresholds, *margins)
    found = output_histograms(*margins).per_example
    note = f"difference {np.abs(found - thresholds()).max():.1e}" if found is not None else ""
    report("output_histograms", partial(output_histograms, *margins), thresholds, note)
    report("activation_l2", partial(activation_l2, p, r), None)
    report("js_to_retrained", partial(js_to_retrained, p, r), None)


if __name__ == "__main__":
    main()
