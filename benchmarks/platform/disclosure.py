"""What one submission can tell its team of hidden data: bits by field, as the gate bounds and as draws reach them.

A field's bound is that of `server.disclosure.gate`. Beside it stands log2 of the number of different values that were
shown for `--draws` random hidden ones: it must not be above the bound.

python -m benchmarks.platform.disclosure [--runs 512] [--hours 8] [--metrics 2] [--step 0.01] [--draws 200000]
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from math import log2

import numpy as np

from server.disclosure import gate
from server.disclosure.shown_progress import bits_of_progress, bits_of_the_end
from server.evaluations.leak_budget import estimate_price


@dataclass(frozen=True)
class Field:
    """bits: at most. reached: by the draws; None where it is worked out only. shown: when. counted: in the budget."""

    name: str
    bits: float
    reached: float | None
    shown: str
    counted: bool


def reached(draws: int, show: Callable[[np.random.Generator], object]) -> float:
    """Return log2 of the number of different values that are shown."""
    rng = np.random.default_rng(0)
    return log2(len({show(rng) for _ in range(draws)}))


def fields(*, runs: int, seconds: float, metrics: int, step: float, draws: int) -> list[Field]:
    ladder = log2(1 / step + 1)

    def number(show: Callable[[float], object]) -> float:
        return reached(draws, lambda rng: show(float(rng.uniform())))

    score = number(gate.show_score)
    value = number(lambda drawn: gate.show_metric(drawn, exact=False))
    time = reached(draws, lambda rng: gate.show_run_time(float(np.exp(rng.uniform(-4.0, 7.0)))))
    failure = estimate_price(detail_bits=0.0, n_runs=runs).least
    return [
        Field("public score, five decimals", gate.BITS_OF_A_SCORE, score, "always", counted=False),
        Field(f"  on a ladder with step {step:g}, instead", ladder, None, "with a ladder", counted=False),
        Field(
            "rank, order, filters, columns of the own line", 0.0, None, "always; made of shown values", counted=False
        ),
        Field("time of a run", gate.BITS_OF_A_RUN_TIME, time, "always", counted=True),
        Field(
            "progress: quarters, to the minute",
            bits_of_progress(wall_time_s=seconds),
            None,
            "always",
            counted=False,
        ),
        Field("moment of the end, to the second", bits_of_the_end(wall_time_s=seconds), None, "always", counted=False),
        Field("receipt before the reveal", 0.0, None, "always; no new value", counted=False),
        Field("interval of the score", 2 * gate.BITS_OF_A_SCORE, 2 * score, "show_intervals", counted=True),
        Field("factors, epsilons, two ratios", 12 * gate.BITS_OF_A_VALUE, 12 * value, "show_breakdown", counted=True),
        *(
            Field(
                f"metric {n + 1}, each number of it",
                gate.BITS_OF_A_VALUE,
                value,
                "visible_to_participants",
                counted=True,
            )
            for n in range(metrics)
        ),
        Field("failure: class and run", failure, None, "in place of a score", counted=True),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=512)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--metrics", type=int, default=2)
    parser.add_argument("--step", type=float, default=0.01)
    parser.add_argument("--draws", type=int, default=200_000)
    asked = parser.parse_args()
    found = fields(
        runs=asked.runs, seconds=3600 * asked.hours, metrics=asked.metrics, step=asked.step, draws=asked.draws
    )
    print(f"{'field':48}{'bits':>7}{'drawn':>7}  {'in the budget':14} shown")
    for field in found:
        drawn = "" if field.reached is None else f"{field.reached:.1f}"
        print(f"{field.name:48}{field.bits:7.1f}{drawn:>7}  {'yes' if field.counted else 'no':14} {field.shown}")
    least = [field for field in found if field.shown.startswith("always")]
    print(f"{'with nothing opened, in all':48}{sum(field.bits for field in least):7.1f}")
    over = [field.name for field in found if field.reached is not None and field.reached > field.bits]
    if over:
        raise SystemExit(f"more was shown than the gate says: {', '.join(over)}")


if __name__ == "__main__":
    main()
