"""What a language model answers to the forget questions of the public sample.

A model of the sample is what a stranger's code made of it, so it can say any token. Of the vocabulary, which was made
from the hidden texts too, only tokens that the sample itself holds are written out.
"""

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from lethe.data.answer_sets import StoredAnswers
from lethe.data.files import read_json
from lethe.data.split_questions import SplitQuestions
from lethe.data.tokenizers import Tokenizer
from lethe.device.precision import device_arithmetic, one_thread, zero_for_denormals
from lethe.evaluation.answer_losses import answer_losses
from lethe.evaluation.generation import generate_greedily
from lethe.evaluation.sample_answer_files import MAX_QUESTIONS
from lethe.networks.builders import build

UNKNOWN = "[?]"  # in place of tokens that the sample does not hold


class SampleAnswers:
    """Asks models the first forget questions of a sample, greedily: one model has the same answers on every call."""

    def __init__(self, sample_dir: Path, tokenizer: Tokenizer, *, max_new_tokens: int, device: str = "cpu") -> None:
        self.device = torch.device(device)
        self._tokenizer, self._max_new_tokens = tokenizer, max_new_tokens
        sets = [StoredAnswers.read(sample_dir / f"{name}.safetensors") for name in ("forget", "retain", "validation")]
        self._asked = sets[0].answers[:MAX_QUESTIONS]
        self._known = {token for part in sets for row in (*part.answers, *part.refusals) for token in row.tokens}
        network: Mapping[str, Any] = read_json(sample_dir / "network.json")
        self._net: Any = build(network).eval().requires_grad_(False).to(self.device)

    @classmethod
    def load(cls, split_dir: Path, device: str = "cpu") -> Self:
        """Return what asks the models of a split's sample. Raises SplitNotPrepared, DamagedSplit, InvalidTokenizer."""
        stored = SplitQuestions.read(split_dir)
        return cls(split_dir / "sample", stored.tokenizer, max_new_tokens=stored.max_new_tokens, device=device)

    def of_model(self, state: Mapping[str, Tensor]) -> tuple[str, ...] | None:
        """Return the answers of the model with this state_dict, None if a loss of it is infinite or not a number."""
        self._net.load_state_dict(state)
        end_id = self._tokenizer.end_id
        with one_thread(self.device), zero_for_denormals(self.device), device_arithmetic("float32", self.device):
            if not np.isfinite(answer_losses(self._net, self._asked, padding_id=end_id)).all():
                return None
            prompts = [answer.tokens[: answer.answer_start] for answer in self._asked]
            found = generate_greedily(self._net, prompts, end_id=end_id, max_new_tokens=self._max_new_tokens)
        return tuple(self._text(tokens) for tokens in found)

    def _text(self, tokens: list[int]) -> str:
        parts = groupby(tokens, key=self._known.__contains__)
        return " ".join(self._tokenizer.decode(list(run)) if known else UNKNOWN for known, run in parts)
