"""What a run of a method costs in processor time and in counted work, beside one retraining.

A few runs more, one after another in a process of their own: neither other processes nor the start of a sandbox count.
"""

import numpy as np

from lethe.benchmark.plan import MethodPlan
from lethe.benchmark.store import Json, Unit
from lethe.tuning.local_run import SplitRuns

RUNS = 3
Z_95 = 1.959964


def can_be_measured(method: MethodPlan) -> bool:
    """Return whether the method may run without a sandbox: one of the catalogue, or one that was searched so."""
    return method.method_id is not None or method.searched


def measure_cost(unit: Unit, method: MethodPlan, process: SplitRuns, *, run_limit_s: float) -> None:
    """Run the method and keep what its runs and one retraining cost. Raises InvalidInput if it fails."""
    done = process.run(method.files, runs=RUNS, run_limit_s=run_limit_s)
    runs = {name: [run[name] for run in done.runs] for name in ("cpu_time_s", "work_epochs")}
    retraining = {"retraining_cpu_s": done.retraining_cpu_s, "retraining_epochs": done.retraining_epochs}
    unit.write("cost", {**runs, **retraining})


def cost_values(kept: Json) -> dict[str, Json]:
    """Return `rte_cpu` and `rte_work`: a retraining's processor time and work over a run's, with 95 % intervals.

    No value where a run costs nothing or retraining's cost is unknown. kept: empty where nothing was measured.
    """
    pairs = {"rte_cpu": ("retraining_cpu_s", "cpu_time_s"), "rte_work": ("retraining_epochs", "work_epochs")}
    return {name: _ratio(kept[above], kept[below]) for name, (above, below) in pairs.items() if kept}


def _ratio(retraining: float | None, runs: list[float]) -> Json:
    if retraining is None or min(runs) <= 0.0:
        return {"value": None}
    ratios = retraining / np.asarray(runs)
    half = Z_95 * float(ratios.std(ddof=1)) / np.sqrt(len(runs))
    middle = float(ratios.mean())
    return {"value": middle, "interval": [middle - half, middle + half]}
