"""The early gate: a model that did not learn stops the preparation and is shown."""

import torch

from lethe.competition.file import CompetitionFile
from lethe.data.errors import UntrainedModel
from lethe.networks.builders import build
from lethe.training.trainer import State, TrainingJob


def training_accuracy(job: TrainingJob, state: State, *, batch_size: int = 512) -> float:
    """Return the accuracy of a model on the images it was trained on."""
    net = build(job.network)
    net.load_state_dict(state)
    net = net.to(job.device).eval()
    with torch.inference_mode():
        right = sum(
            int((net(inputs).argmax(dim=1) == job.labels[index]).sum())
            for index, inputs in job.batches(torch.arange(len(job.labels)), batch_size)
        )
    return right / len(job.labels)


def check_learned(competition: CompetitionFile, model: str, accuracy: float, *, chance: float) -> None:
    """Raise UntrainedModel where `accuracy` on the training examples is below the gate. chance: of guessing."""
    gate = competition.training.min_train_accuracy or min(2 * chance, (1 + chance) / 2)
    if not accuracy >= gate:
        raise UntrainedModel(
            f"{model} reaches an accuracy of {accuracy:.3f} on its own training {competition.task.example}s; at least "
            f"{gate:.3f} is required (training.min_train_accuracy; guessing gives {chance:.3f}): change [training]"
        )
