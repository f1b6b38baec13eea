"""Evaluation of language models: weights in, answer probabilities, accuracies and the arrays of text metrics out.

In the place of an image's true class is the probability of an answer per token; in the place of accuracy, the share
of the answers' tokens that are the model's first choice. The result depends on the weights, the split and the device
kind alone, as that of images does.

Sample answers: a model of the public sample is what a stranger's code made of it, so it can say any token. Of the
vocabulary, which was made from the hidden texts too, only tokens that the sample itself holds are written out.
"""

from collections.abc import Collection, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from lethe.data.files import read_json
from lethe.data.question_answers import QUESTIONS, SplitQuestions, StoredAnswers
from lethe.data.stored_sets import SET_PATHS
from lethe.data.tokenizers import Tokenizer
from lethe.device import device_arithmetic, one_thread, zero_for_denormals
from lethe.evaluation.image_evaluation import NonFiniteOutputs
from lethe.evaluation.manifest import NETWORK_PATH, Manifest, require_whole
from lethe.evaluation.model_outputs import ORIGINAL
from lethe.evaluation.sample_answer_files import FORGET_ANSWERS, MAX_QUESTIONS, texts_as_array
from lethe.evaluation.shard_outputs import RunOutputs
from lethe.evaluation.text import (
    AnswerScores,
    AnswerStatistics,
    QuestionSet,
    answer_losses,
    answer_scores,
    answer_statistics,
    confidences,
    generate_greedily,
    question_arrays,
    token_arrays,
    tokenize_questions,
)
from lethe.metrics.core.array_catalogue import CaptureLevel
from lethe.metrics.text.mia_text import compressed_sizes
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


ANSWERED = ("forget", "retain", "real_authors", "world_facts")  # sets whose questions are also answered freely
HOLDOUT = "holdout"
ARRAYS_OF_TOKENS = {"forget": "forget", "test": HOLDOUT}  # sets whose tokens are kept, and what their arrays are called
BYTES_PER_TOKEN = 6  # of a stored answer; English has about four


class AnswerEvaluator:
    """Evaluates unlearned models of one split on its forget, retain and test questions."""

    def __init__(
        self,
        network: Mapping[str, Any],
        sets: Mapping[str, StoredAnswers],
        *,
        device: str = "cpu",
        batch_size: int = 32,
        levels: Collection[int] = (),
        questions: SplitQuestions | None = None,
    ) -> None:
        """levels: what is captured of each model; those of text need `questions`."""
        self.network = network
        self.device = torch.device(device)
        self.batch_size = batch_size
        self._sets = dict(sets)
        self._net: Any = build(network).eval().requires_grad_(False).to(self.device)
        wanted = questions is not None and CaptureLevel.TEXT in levels
        self._questions = questions if wanted else None
        self._tokens: dict[str, QuestionSet] = {}
        if self._questions is not None:
            context = int(network["options"]["context"])
            for name in ANSWERED:
                found = self._questions.sets.get(name, ())
                self._tokens[name] = tokenize_questions(name, found, self._questions.tokenizer, context=context)

    @classmethod
    def load(cls, split_dir: Path, device: str = "cpu") -> Self:
        """Return the evaluator of a prepared split. Raises SplitNotPrepared, or DamagedSplit naming the file."""
        paths = {name: SET_PATHS[name] for name in ("forget", "retain", "test")}
        settings = require_whole(split_dir, only=(NETWORK_PATH, ORIGINAL, QUESTIONS, *paths.values())).evaluation
        return cls(
            read_json(split_dir / NETWORK_PATH),
            {name: StoredAnswers.read(split_dir / path) for name, path in paths.items()},
            device=device,
            batch_size=settings.batch_size,
            levels=settings.capture,
            questions=SplitQuestions.read(split_dir) if CaptureLevel.TEXT in settings.capture else None,
        )

    def evaluate(self, weights: bytes, *, integer_buffers: Mapping[str, Tensor] | None = None) -> RunOutputs:
        """Return the outputs of the model in `weights`, one checked safetensors file.

        integer_buffers: of a run's own original model. Raises NonFiniteOutputs where a loss is not finite.
        """
        return self.evaluate_state(safetensors.torch.load(weights) | dict(integer_buffers or {}))

    def evaluate_state(self, state: Mapping[str, Tensor]) -> RunOutputs:
        """Return the outputs of the model with this state_dict."""
        self._net.load_state_dict(state)
        with one_thread(self.device), zero_for_denormals(self.device), device_arithmetic("float32", self.device):
            statistics = {name: self._statistics(name) for name in ARRAYS_OF_TOKENS} if self._questions else {}
            scores = {
                name: statistics[name].scores if name in statistics else self._scores(name)
                for name in ("forget", "retain", "test")
            }
            for name, found in scores.items():
                _require_finite(name, found)
            retain, test = scores["retain"].token_accuracy, scores["test"].token_accuracy
            return RunOutputs(
                confidences=confidences(scores["forget"].loss),
                retain_accuracy=retain,
                test_accuracy=test,
                class_accuracy=np.array([[retain], [test]], np.float32),
                captured=self._captured(statistics),
            )

    def _scores(self, name: str) -> AnswerScores:
        answers, padding_id = self._sets[name].answers, int(self.network["padding_id"])
        return answer_scores(self._net, answers, padding_id=padding_id, batch_size=self.batch_size)

    def _statistics(self, name: str) -> AnswerStatistics:
        answers, padding_id = self._sets[name].answers, int(self.network["padding_id"])
        return answer_statistics(self._net, answers, padding_id=padding_id, batch_size=self.batch_size)

    def _captured(self, statistics: Mapping[str, AnswerStatistics]) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of text metrics, if the split stores them. statistics: of the sets of ARRAYS_OF_TOKENS."""
        if self._questions is None:
            return {}
        arrays: dict[str, NDArray[Any]] = {}
        tokenizer, most = self._questions.tokenizer, self._questions.max_new_tokens
        for name in ANSWERED:
            known = statistics[name].scores.loss if name in statistics else None
            found, answers = question_arrays(
                self._net, self._tokens[name], tokenizer, max_new_tokens=most, answer_loss=known
            )
            arrays |= found
            if name == "forget":
                arrays[FORGET_ANSWERS] = texts_as_array(answers, width=BYTES_PER_TOKEN * most)
        for name, prefix in ARRAYS_OF_TOKENS.items():
            arrays |= token_arrays(prefix, statistics[name])
        return arrays | {"holdout_answer_loss": statistics["test"].scores.loss}


def _require_finite(name: str, scores: AnswerScores) -> None:
    if wrong := int((~np.isfinite(scores.loss)).sum()):
        raise NonFiniteOutputs(
            f"the losses of {wrong} of {len(scores.loss)} {name} answers are infinite or not numbers; all must be "
            f"finite"
        )


load = AnswerEvaluator.load


def load_sample(sample_dir: Path) -> AnswerEvaluator:
    sets = {name: StoredAnswers.read(sample_dir / f"{name}.safetensors") for name in ("forget", "retain", "validation")}
    sets["test"] = sets.pop("validation")
    return AnswerEvaluator(read_json(sample_dir / "network.json"), sets)


def shared_arrays(split_dir: Path) -> dict[str, NDArray[Any]]:
    manifest = Manifest.read(split_dir)
    arrays: dict[str, NDArray[Any]] = {"retraining_time_s": np.asarray(manifest.retraining_time_s)}
    if CaptureLevel.TEXT not in manifest.evaluation.capture:
        return arrays
    stored = SplitQuestions.read(split_dir)
    context = int(read_json(split_dir / NETWORK_PATH)["options"]["context"])
    for name in ("forget", HOLDOUT):
        questions = tokenize_questions(name, stored.sets[name], stored.tokenizer, context=context)
        arrays[f"{name}_answer_tokens"] = np.array([answer.answer_tokens for answer in questions.answers], np.int64)
        arrays[f"{name}_compressed_bytes"] = compressed_sizes([one.answer for one in stored.sets[name]])
    return arrays
