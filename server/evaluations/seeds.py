"""Which random seed each run gets: a function of the split's secret seed and the run's number, and of nothing else."""

import hashlib


def run_seed(competition_slug: str, data: str, *, split_seed: int, run: int) -> int:
    """Return the seed of run `run`, in [0, 2**63). data: public or private, of a split; `sample_data` of a smoke run.

    Runs of every submission on a split share their seeds, so two submissions differ by their code alone. Participants'
    code is told its seed. It is half of a hash of the split's seed, so only whoever could try every split seed would
    learn from it, and know the run's number: unless its file says weak_seed, a competition takes no split seed below
    64 bits.
    """
    text = f"lethe-run/{competition_slug}/{data}/{split_seed}/{run}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def sample_data(submission_id: str) -> str:
    """Return what a smoke run's seed is of. A team sees it: no other run, smoke or hidden, may have the same."""
    return f"sample/{submission_id}"
