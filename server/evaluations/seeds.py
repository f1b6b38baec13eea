"""Which random seed each run gets: a function of the split and the run's number, and of nothing else."""

import hashlib

SAMPLE = "sample"  # what smoke runs use: their output is shown, so no seed of theirs may be one of a run on hidden data


def run_seed(competition_slug: str, data: str, *, split_seed: int, run: int) -> int:
    """Return the seed of run `run`, in [0, 2**63). data: public or private, of a split; SAMPLE for smoke runs.

    Runs of every submission on a split share their seeds, so two submissions differ by their code alone. Participants'
    code is told its seed. It is half of a hash of the split's seed, so only whoever could try every split seed would
    learn from it: unless its file says weak_seed, a competition takes no split seed below 64 bits.
    """
    text = f"lethe-run/{competition_slug}/{data}/{split_seed}/{run}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
