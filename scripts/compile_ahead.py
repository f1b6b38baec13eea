"""Compile what every start would: bytecode of what is loaded, and the scorer's loops to machine code.

uv compiles no bytecode, a sandbox can write none, and an environment may keep Python from writing any: without this,
each process of an instance compiles torch's modules again. For `make install`, which runs the parts side by side.
"""

import argparse
import importlib
from collections.abc import Sequence

import numpy as np

N_MODELS, N_EXAMPLES = 32, 3


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    PARTS[parser.parse_args(arguments).part]()


def load_template() -> None:
    """Load what a sandbox does: Python keeps the bytecode."""
    importlib.import_module("sandbox.guest.template")


def load_server() -> None:
    """Load what a worker and the web server do."""
    for name in ("worker.tasks", "server.main"):
        importlib.import_module(name)


def load_for_notebooks() -> None:
    """Load what the sandbox of a notebook does."""
    importlib.import_module("sandbox.guest.template").import_usual_libraries()


def compile_scorer() -> None:
    """Score as a worker does, but for the number of models and examples: numba keeps what that compiles."""
    job = importlib.import_module("worker.evaluation.scoring_job")
    score = importlib.import_module("lethe.metrics.scoring.score")
    rng = np.random.default_rng(0)
    sides = rng.normal(size=(3, N_MODELS, N_EXAMPLES))
    unlearned, oracle, retrained = (score.ModelOutputs(side, *rng.random((2, N_MODELS))) for side in sides)
    found, best = (
        job.score_outputs(side, retrained, scoring=job.Scoring(), attack_seed=1) for side in (unlearned, oracle)
    )
    job.doubt_about(found, best, unlearned=sides[0], oracle_models=sides[1], retrained=sides[2])
    job.confidence_ratios(unlearned, retrained)


PARTS = {
    "template": load_template,
    "server": load_server,
    "notebooks": load_for_notebooks,
    "scorer": compile_scorer,
}

if __name__ == "__main__":
    main()
