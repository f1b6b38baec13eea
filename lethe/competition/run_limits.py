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


def limit_warnings(limits: Limits, *, retraining_time_s: float, estimated: bool = False) -> list[str]:
    """Return a sentence where a run has the time to retrain, or nothing ties its limit to retraining; else none.

    retraining_time_s: of one model of the split; 0 where it is not known. estimated: from shapes, not measured.
    """
    limit = run_wall_time_s(limits, retraining_time_s=retraining_time_s)
    if 0 < retraining_time_s <= limit:
        about = "takes about" if estimated else "takes"
        return [
            f"retraining from scratch fits into a run's limit: it {about} {retraining_time_s:.3g} s, a run may take "
            f"{limit:.3g} s; whoever retrains wins. Lower [limits] run_wall_time_floor_s (now "
            f"{limits.run_wall_time_floor_s:g}) or run_wall_time_s, or make the task heavier to train"
        ]
    fraction = limits.run_fraction_of_retraining
    if limits.run_wall_time_s is None and (fraction is None or fraction >= 1.0):
        return [
            f"[limits] run_fraction_of_retraining is {'not set' if fraction is None else format(fraction, 'g')} and "
            "run_wall_time_s is not set: a run may have the time to retrain from scratch. Set a share below 1"
        ]
    return []
