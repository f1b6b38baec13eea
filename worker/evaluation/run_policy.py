"""What one run of a competition may use."""

from lethe.competition.file import Limits
from lethe.competition.run_limits import RetrainingCost, run_limit
from sandbox.policy import RunPolicy


def run_policy(limits: Limits, *, retraining: RetrainingCost, threads: int, libraries: str = "") -> RunPolicy:
    """Return the policy of one run: the competition's limits, with the time as a share of one retraining.

    libraries: the set of older libraries that the competition names, if it names one.
    """
    limit = run_limit(limits, retraining)
    return RunPolicy(
        wall_time_s=limit.wall_time_s,
        idle_time_s=limits.run_idle_time_s,
        cpu_time_s=limit.cpu_time_s,
        memory_mib=limits.memory_mib,
        processes=limits.processes,
        scratch_mib=limits.scratch_mib,
        log_kib=limits.log_kib,
        threads=threads,
        libraries=libraries,
    )
