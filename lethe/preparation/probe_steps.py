"""The steps of a split whose competition keeps weights for probes: what level 4 compares with."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import torch

from lethe.competition.file import CompetitionFile
from lethe.data.stored_sets import SET_PATHS
from lethe.device.memory import memory_given_back
from lethe.evaluation.inference import load_original
from lethe.evaluation.model_outputs import PROBED_REFERENCES, write_probed_references
from lethe.evaluation.probes.split_probes import FILES_READ, VERSION, SplitProbes, first_models, probed_references
from lethe.preparation.model_shards import ShardPlan
from lethe.preparation.step_cache import OnProgress, PreparationProgress, Step

STAGE = "probing references"


def probe_steps(
    competition: CompetitionFile,
    plan: ShardPlan,
    folder: Path,
    *,
    device: str,
    progress: OnProgress,
    store_first_oracles: Callable[[int, str], None],
) -> list[Step]:
    """Return the steps that store the oracle's first models, and probe them, as many retrained ones and the original.

    None where the competition keeps no weights. store_first_oracles: trains so many and writes them to a path.
    """
    n_models = min(competition.report.keep_weights, competition.n_models)
    if not n_models:
        return []
    oracle = plan.checkpoint_path("oracle", 0)
    shards = range(-(-n_models // plan.models_per_shard))
    retrained = [plan.checkpoint_path("retrained", shard) for shard in shards]

    def probe() -> None:
        done = count(1)

        def report() -> None:
            progress(PreparationProgress(STAGE, next(done), 2 * n_models + 1))

        with memory_given_back(torch.device(device)):
            probes = SplitProbes.read(folder, trained_at=competition.training.learning_rate, device=device)
            sides = probed_references(
                probes,
                retrained=first_models((folder / path for path in retrained), n_models),
                oracle=first_models([folder / oracle], n_models),
                original=load_original(folder),
                on_model=report,
            )
        write_probed_references(folder, sides)

    return [
        Step(
            f"oracle-models-{n_models}",
            (oracle,),
            lambda: store_first_oracles(n_models, oracle),
            inputs=(FILES_READ[0], SET_PATHS["retain"]),
            stage="oracle",
        ),
        Step(
            f"probes-{VERSION}-{n_models}",
            (PROBED_REFERENCES,),
            probe,
            inputs=(*FILES_READ, oracle, *retrained),
            stage=STAGE,
        ),
    ]
