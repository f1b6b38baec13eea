"""Which random seed each run gets: a function of the split and the run's number, and of nothing else."""

import hashlib


def run_seed(competition_slug: str, visibility: str, *, split_seed: int, run: int) -> int:
    """Return the seed of run `run`, in [0, 2**63).

    Runs of every submission on a split share their seeds, so two submissions differ by their code alone.
    """
    text = f"lethe-run/{competition_slug}/{visibility}/{split_seed}/{run}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
