"""The steps of a split whose competition keeps weights for probes: what level 4 compares with."""

from itertools import count
from typing import TYPE_CHECKING

import torch

from lethe.data.stored_sets import SET_PATHS
from lethe.device.memory import memory_given_back
from lethe.evaluation.inference import load_original
from lethe.evaluation.model_outputs import PROBED_REFERENCES, write_probed_references
from lethe.evaluation.probes.split_probes import FILES_READ, VERSION, SplitProbes, first_models, probed_references
from lethe.preparation.step_cache import Progress, Step

if TYPE_CHECKING:
    from lethe.preparation.preparation import Preparation

STAGE = "probing references"


def probe_steps(preparation: "Preparation") -> list[Step]:
    """Return the steps that store the oracle's first models, and probe them, as many retrained ones and the original.

    None where the competition keeps no weights.
    """
    n_models = min(preparation.competition.report.keep_weights, preparation.competition.n_models)
    if not n_models:
        return []
    plan = preparation.plan
    oracle = plan.checkpoint_path("oracle", 0)
    shards = range(-(-n_models // plan.models_per_shard))
    retrained = [plan.checkpoint_path("retrained", shard) for shard in shards]

    def probe() -> None:
        folder, done = preparation.out, count(1)

        def tell() -> None:
            preparation.progress(Progress(STAGE, next(done), 2 * n_models + 1))

        with memory_given_back(torch.device(preparation.device)):
            probes = SplitProbes.read(
                folder, trained_at=preparation.competition.training.learning_rate, device=preparation.device
            )
            sides = probed_references(
                probes,
                retrained=first_models((folder / path for path in retrained), n_models),
                oracle=first_models([folder / oracle], n_models),
                original=load_original(folder),
                on_model=tell,
            )
        write_probed_references(folder, sides)

    return [
        Step(
            f"oracle-models-{n_models}",
            (oracle,),
            lambda: preparation.shards("oracle").store_first(n_models, oracle),
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
