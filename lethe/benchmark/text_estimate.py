"""What one model of a text competition costs: from its files, or from what is known of published ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lethe.competition.file import CompetitionFile
from lethe.competition.task import CausalLm
from lethe.competition.training_cost import RATES
from lethe.errors import AppError
from lethe.networks.builders import build
from lethe.preparation.task_kinds import task_preparation

# Files that may not be at hand, by their folder: questions and mean tokens of a data set, weights of a network
KNOWN_TEXTS = {"tofu": (4000, 65.3)}  # counted with Llama 2's tokenizer
KNOWN_WEIGHTS = {"phi-1_5": 1_418_270_720, "gpt2": 124_439_808, "gpt2-xl": 1_557_611_200}
LOSSES = 9  # numbers of a question that metrics read: of its answer, a paraphrase and wrong answers, and others
TOKEN_BYTES = 13  # what is kept of a token of an answer


@dataclass(frozen=True)
class TextSize:
    """n_questions: of the data set. tokens: the mean of a question with its answer. weights: of the network."""

    n_questions: int
    tokens: float
    weights: int

    def training_s(self, competition: CompetitionFile, *, device: str) -> float:
        """Return about how long one process trains one model: six operations for each weight and token."""
        operations = 6 * self.weights * self.tokens * self._n_train(competition) * competition.training.epochs
        return operations / RATES[device]

    def evaluation_s(self, competition: CompetitionFile, *, device: str) -> float:
        """Return about how long the losses of all sets and the answers of the measured questions take."""
        task = competition.task
        asked = self._n_forget(competition) + (task.measured_retain if isinstance(task, CausalLm) else 0)
        generated = asked * task.max_new_tokens if isinstance(task, CausalLm) else 0
        return 2 * self.weights * (self.tokens * self.n_questions + generated) / RATES[device]

    def bytes_of_run(self, competition: CompetitionFile) -> float:
        """Return what is stored of one model beside its weights."""
        n_forget = self._n_forget(competition)
        return n_forget * (8 + 8 * LOSSES + TOKEN_BYTES * self.tokens)

    def _n_train(self, competition: CompetitionFile) -> float:
        splits = competition.splits
        return self.n_questions * (1 - splits.validation_fraction - splits.test_fraction)

    def _n_forget(self, competition: CompetitionFile) -> float:
        return competition.splits.forget.fraction * self._n_train(competition)


def text_size(competition: CompetitionFile) -> TextSize:
    """Return the sizes of a text competition. Raises AppError for files that are neither there nor known."""
    task = task_preparation("causal-lm")
    try:
        dataset = task.open_dataset(competition)
        description = task.describe_network(competition, dataset)
    except AppError:
        folder = str(competition.dataset.options.get("root", "")).rstrip("/").rpartition("/")[2]
        network = competition.network.options.get("pretrained")
        if folder not in KNOWN_TEXTS or network not in KNOWN_WEIGHTS:
            raise
        return TextSize(*KNOWN_TEXTS[folder], KNOWN_WEIGHTS[network])
    texts = dataset.questions[:: max(1, len(dataset) // 200)]
    encode = dataset.tokenizer.encode
    tokens = sum(len(encode(one.question)) + len(encode(one.answer)) for one in texts) / len(texts)
    return TextSize(len(dataset), tokens, _n_weights(description))


def _n_weights(description: Mapping[str, Any]) -> int:
    with torch.device("meta"):  # shapes alone: a network of a billion weights takes no memory
        return sum(parameter.numel() for parameter in build(description).parameters())
