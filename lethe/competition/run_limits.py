"""How long one run of a submission may take: the one rule that workers enforce and that pages and kits show."""

from lethe.competition.file import Limits


def run_wall_time_s(limits: Limits, *, retraining_time_s: float) -> float:
    """Return the wall time of one run, seconds: the smallest of the limits that apply.

    A share of retraining is never less than the floor; limits in seconds are taken as they are.
    retraining_time_s: of one model of the split; 0 where it is not known, and the share then does not apply.
    """
    candidates = [limits.wall_time_s]
    if limits.run_wall_time_s is not None:
        candidates.append(limits.run_wall_time_s)
    if limits.run_fraction_of_retraining is not None and retraining_time_s > 0:
        share = limits.run_fraction_of_retraining * retraining_time_s
        candidates.append(max(share, limits.run_wall_time_floor_s))
    return min(candidates)
