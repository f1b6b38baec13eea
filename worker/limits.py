"""What one run of a competition may use."""

from sandbox.policy import RunPolicy
from server.competitions.config_file import Limits


def run_policy(limits: Limits, *, retraining_time_s: float, threads: int) -> RunPolicy:
    """Return the policy of one run: the competition's limits, with the time as a share of one retraining."""
    return RunPolicy(
        wall_time_s=run_wall_time_s(limits, retraining_time_s=retraining_time_s),
        idle_time_s=limits.run_idle_time_s,
        cpu_time_s=limits.run_cpu_time_s,
        memory_mib=limits.memory_mib,
        processes=limits.processes,
        scratch_mib=limits.scratch_mib,
        log_kib=limits.log_kib,
        threads=threads,
    )


def run_wall_time_s(limits: Limits, *, retraining_time_s: float) -> float:
    """Return the smallest of the limits that apply to one run, but never less than the floor, seconds."""
    candidates = [limits.wall_time_s]
    if limits.run_wall_time_s is not None:
        candidates.append(limits.run_wall_time_s)
    if limits.run_fraction_of_retraining is not None and retraining_time_s > 0:
        share = limits.run_fraction_of_retraining * retraining_time_s
        candidates.append(max(share, limits.run_wall_time_floor_s))
    return min(candidates)
