"""The answers of the model that a run on the public sample returned: its team sees them beside those of others."""

from pathlib import Path

import safetensors.torch
import structlog

from lethe.data.files import sha256_of
from lethe.errors import AppError
from lethe.evaluation.sample_answer_files import SAMPLE_ANSWERS, UnlearnedAnswers
from lethe.evaluation.sample_answers import SampleAnswers

log = structlog.get_logger()


def answers_of_run(split_dir: Path, weights: bytes, *, device: str) -> bytes | None:
    """Return what is stored as the result of a run on the sample, None where the split asks no questions there.

    The run went well: where its answers cannot be had, that is logged, and it has none.
    """
    questions = split_dir / SAMPLE_ANSWERS
    if not questions.is_file():
        return None
    try:
        answers = SampleAnswers.load(split_dir, device).of_model(safetensors.torch.load(weights))
        result = UnlearnedAnswers(questions_sha256=sha256_of(questions), answers=answers)
    except (AppError, OSError, ValueError, RuntimeError) as error:
        log.warning("no answers on the sample", error=str(error))
        return None
    return result.model_dump_json().encode()
