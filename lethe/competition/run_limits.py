"""How long one run of a submission may take: the one rule that workers enforce and that pages and kits show.

Where runs compute on the processor, the limit is processor time: a machine that is busy with something else changes
nothing. It is a share of the fastest retraining that is known; what starting a run takes is added to it.
"""

import math
from dataclasses import dataclass, field

from lethe.competition.sections import Limits

MIN_USEFUL_S = 0.02  # of the processor: a dozen steps of torch in a fresh process, and what it loads for them
WALL_TIMES_CPU = 10.0  # a run that waits for a processor has so many times its processor time by the clock


@dataclass(frozen=True)
class RetrainingCost:
    """What one retraining of a split takes.

    time_s: by the clock, in the plain loop; 0 where it is not known. cpu_s: processor seconds of the fastest that is
    known, without starting; None for splits of a GPU, and of versions that did not measure it. start_cpu_s: processor
    seconds of a run that does nothing. doubt: why a measurement says less than it should, for organisers.
    """

    time_s: float = 0.0
    cpu_s: float | None = None
    start_cpu_s: float = 0.0
    doubt: str = field(default="", compare=False)


@dataclass(frozen=True)
class RunLimit:
    """The limits of one run, seconds. cpu_time_s: of all its processes, with starting; None: only the clock counts.

    training_s: what of it is left for the submission's own work, of the kind that is limited.
    """

    wall_time_s: float
    cpu_time_s: float | None
    training_s: float


def run_limit(limits: Limits, cost: RetrainingCost) -> RunLimit:
    """Return the limits of one run: the smallest of those that apply.

    With a measured processor time, the share of retraining limits processor time, and the clock is a guard. Without
    one, the share limits the time by the clock, and is never less than the floor. Limits in seconds are taken as
    they are.
    """
    by_clock = [limits.wall_time_s, *([limits.run_wall_time_s] if limits.run_wall_time_s is not None else [])]
    if limits.run_fraction_of_retraining is None or cost.cpu_s is None:
        if limits.run_fraction_of_retraining is not None and cost.time_s > 0:
            by_clock.append(max(limits.run_fraction_of_retraining * cost.time_s, limits.run_wall_time_floor_s))
        return RunLimit(min(by_clock), limits.run_cpu_time_s, min(by_clock))
    training_s = limits.run_fraction_of_retraining * cost.cpu_s + limits.run_start_time_s
    if limits.run_cpu_time_s is not None:
        training_s = min(training_s, limits.run_cpu_time_s)
    cpu_time_s = cost.start_cpu_s + training_s
    by_clock.append(max(WALL_TIMES_CPU * cpu_time_s, limits.run_wall_time_floor_s))
    return RunLimit(min(by_clock), cpu_time_s, training_s)


def as_tenths(time_s: float, limit_s: float) -> float:
    """Return the least tenth of the limit, seconds, that a time which kept it does not exceed."""
    return round(limit_s * min(10, max(1, math.ceil(10 * time_s / limit_s))) / 10, 6)


def compare_with_limit(time_s: float, limit_s: float | None, of: str) -> str:
    """Return a run's time beside its limit, and whether it fits. of: "processor" or "clock", as the limit is.

    limit_s: None where the time that is limited was not measured.
    """
    unit = "s of the processor" if of == "processor" else "s by the clock"
    if limit_s is None:
        return f"{time_s:.3g} {unit}"
    return f"{time_s:.2g} of {limit_s:.3g} {unit}: {'fits' if time_s <= limit_s else 'does NOT fit'}"


def limit_warnings(limits: Limits, cost: RetrainingCost, *, n_models: int, estimated: bool = False) -> list[str]:
    """Return a sentence for each thing that is wrong with the limits of runs: they leave the time to retrain, nothing
    ties them to retraining, or all runs together have less time than runs that use their own limits.

    n_models: of an evaluation. estimated: the cost is from shapes, not measured.
    """
    return [*_retraining_warnings(limits, cost, estimated=estimated), *_total_warnings(limits, cost, n_models)]


def _total_warnings(limits: Limits, cost: RetrainingCost, n_models: int) -> list[str]:
    alone = run_limit(limits.model_copy(update={"wall_time_s": math.inf}), cost)
    of_a_run = alone.wall_time_s if alone.cpu_time_s is None else alone.cpu_time_s
    if n_models < 2 or n_models * of_a_run <= limits.wall_time_s or math.isinf(of_a_run):
        return []
    return [
        f"all {n_models} runs together have {limits.wall_time_s:g} s ([limits] wall_time_s), which is less than "
        f"{n_models * of_a_run:.3g} s for runs that use their own limit of {of_a_run:.3g} s: those will not finish"
    ]


def _retraining_warnings(limits: Limits, cost: RetrainingCost, *, estimated: bool) -> list[str]:
    """Of a small network no limit may bind: what an entry in torch needs to begin with can be more than retraining."""
    limit, share = run_limit(limits, cost), limits.run_fraction_of_retraining
    takes_s = cost.time_s if limit.cpu_time_s is None or cost.cpu_s is None else cost.cpu_s
    if 0 < takes_s <= limit.training_s:
        floor = "run_wall_time_floor_s" if cost.cpu_s is None else "run_start_time_s"
        kind = "" if cost.cpu_s is None else " of the processor in its fastest form"
        about = "takes about" if estimated else "takes"
        said = (
            f"retraining from scratch fits into a run's limit: it {about} {takes_s:.3g} s{kind}, a run may take "
            f"{limit.training_s:.3g} s; an entry that retrains would win"
        )
        if cost.cpu_s is not None and takes_s <= MIN_USEFUL_S:
            return [
                f"{said}. The network is so small that no limit binds: a few steps of torch take as long. Make the "
                "task heavier to train"
            ]
        return [
            f"{said}. Lower [limits] {floor} (now {getattr(limits, floor):g}) or run_fraction_of_retraining, or make "
            "the task heavier to train"
        ]
    if limits.run_wall_time_s is None and (share is None or share >= 1.0):
        return [
            f"[limits] run_fraction_of_retraining is {'not set' if share is None else format(share, 'g')} and "
            "run_wall_time_s is not set: a run may have the time to retrain from scratch. Set a share below 1"
        ]
    return []
