"""The stored arrays that metrics may ask for: name, shape, capture level, and how to get one that is missing.

N models a side; S forget, T test, R retain, V validation examples; C classes; m models of each of P variations; X
inputs of the network.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple


class Side(StrEnum):
    """Whose arrays they are. SHARED holds what belongs to the split, such as labels."""

    UNLEARNED = "unlearned"
    RETRAINED = "retrained"
    ORACLE = "oracle"
    ORIGINAL = "original"
    SHARED = "shared"


class CaptureLevel(IntEnum):
    """What inference stores. A competition stores the union of what its metrics need."""

    CONFIDENCES = 0
    LOSSES = 1
    LOGITS = 2
    CONFUSION = 3
    WEIGHTS = 4
    TEXT = 5


AXES = {
    "N": "models",
    "k": "models",
    "M": "networks",
    "S": "examples",
    "T": "examples",
    "R": "examples",
    "V": "examples",
    "C": "classes",
    "D": "radii",
    "G": "attacks",
    "P": "variations",
    "X": "inputs",
    "m": "models",
    "4": "settings",
    "3": "sets",
    "A": "examples",
    "F": "examples",
    "W": "wrong answers",
    "L": "tokens",
}


@dataclass(frozen=True)
class StoredArray:
    """name: the key in files. axes: names of its axes, the first "N" where there is a row per model.

    of_runs: only unlearning has it; no trained model does. own: no capture stores it, the user computes it.
    """

    name: str
    axes: tuple[str, ...]
    level: CaptureLevel
    description: str
    shared: bool = False
    of_runs: bool = False
    own: bool = False

    @property
    def shape(self) -> str:
        """Return the shape in words, such as "[N, S]"."""
        return f"[{', '.join(self.axes)}]"

    @property
    def how(self) -> str:
        """Return what to do when the array is missing."""
        if self.own:
            return f"no capture stores it: compute `{self.name}` {self.shape} and add it to the arrays of these models"
        if self.shared:
            stored = "; a split stores it with `[splits.recipes]`" if self.name.startswith("recipe_") else ""
            return f"add `{self.name}` {self.shape} to the file of any side{stored}"
        add = f"add `{self.name}` {self.shape} to the arrays of these models"
        if self.level == CaptureLevel.CONFIDENCES:
            return f"{add}; a prepared split has all there is"
        if self.level == CaptureLevel.WEIGHTS:
            return (
                f"{add}, or evaluate checkpoints with `lethe evaluate --split DIR --models FOLDER --probes 4`; a split "
                "stores it with `keep_weights` in its competition file's [report]"
            )
        if self.level == CaptureLevel.TEXT:
            return f"{add}; it comes from a language model, and a split of text stores it"
        return (
            f"{add}; a split stores it with `capture` of {int(self.level)} or more in its competition file's [report]"
        )


def _array(name: str, axes: str, level: CaptureLevel, description: str, **marks: bool) -> StoredArray:
    return StoredArray(name, tuple(axes.split()), level, description, **marks)


_CONFIDENCES, _LOSSES, _LOGITS = CaptureLevel.CONFIDENCES, CaptureLevel.LOSSES, CaptureLevel.LOGITS
_CONFUSION, _WEIGHTS = CaptureLevel.CONFUSION, CaptureLevel.WEIGHTS

_STORED = (
    _array("confidences", "N S", _CONFIDENCES, "log(p / (1 - p)) of the true class, on the forget set"),
    _array("retain_accuracy", "N", _CONFIDENCES, "accuracy on the retain set, in [0, 1]"),
    _array("test_accuracy", "N", _CONFIDENCES, "accuracy on the test set, in [0, 1]"),
    _array("wall_time_s", "N", _CONFIDENCES, "time of the run, in seconds", of_runs=True),
    _array("cpu_time_s", "N", _CONFIDENCES, "processor time of the run, in seconds", of_runs=True),
    _array("epsilon", "S", _CONFIDENCES, "epsilon of every forget example, in nats, as the score computes it"),
    _array("forget_correct", "N S", _LOSSES, "whether the forget example is classified correctly"),
    _array("forget_loss", "N S", _LOSSES, "cross-entropy of the forget examples, in nats"),
    _array("test_loss", "N T", _LOSSES, "cross-entropy of the test examples, in nats"),
    _array("validation_loss", "N V", _LOSSES, "cross-entropy of the validation examples, in nats"),
    _array("retain_loss", "N R", _LOSSES, "cross-entropy of the stored subset of retain examples, in nats"),
    _array("forget_logits", "N S C", _LOGITS, "network outputs on the forget set"),
    _array("test_logits", "N T C", _LOGITS, "network outputs on the test set"),
    _array("retain_logits", "N R C", _LOGITS, "network outputs on the stored subset of retain examples"),
    _array(
        "confusion", "N 3 C C", _CONFUSION, "counts [true, predicted]: forget with given and with true labels, test"
    ),
    _array("metric_per_run", "N", _CONFIDENCES, "another metric's value per run, one row per method or level"),
    _array("relearn_epochs", "k", _WEIGHTS, "epochs until the forget loss is back at the original model's"),
    _array("perturbed_accuracy", "k D S", _WEIGHTS, "share of perturbed copies classified correctly, per radius"),
    _array("noise_alignment", "N S", _WEIGHTS, "alignment of training noise and input gradient", own=True),
    *(
        _array(
            f"{part}_saliency",
            f"N {size} X",
            _WEIGHTS,
            f"saliency maps of the {part} examples, by `lethe.evaluation.probes.saliency`",
            own=True,
        )
        for part, size in (("forget", "S"), ("retain", "R"), ("test", "T"))
    ),
    _array("attacked_knowledge", "k G", _WEIGHTS, "knowledge of the forget set after each attack, in [0, 1]"),
    _array("loss_barrier", "k", _WEIGHTS, "rise of the forget loss on the straight way to the original, in nats"),
    _array("weight_distance", "k", _WEIGHTS, "L2 distance of the parameters from those of retrained model i"),
    _array("weight_norm", "k", _WEIGHTS, "L2 norm of the parameters"),
    _array("forget_labels", "S", _CONFIDENCES, "class numbers of the forget set", shared=True),
    _array("test_labels", "T", _CONFIDENCES, "class numbers of the test set", shared=True),
    _array("retain_labels", "R", _CONFIDENCES, "class numbers of the stored retain examples", shared=True),
    _array("n_classes", "", _CONFIDENCES, "number of classes", shared=True),
    _array("n_models", "", _CONFIDENCES, "number of retrained models", shared=True),
    _array("retraining_time_s", "", _CONFIDENCES, "time of one retraining on the same device kind", shared=True),
    _array("random_forget_logits", "M S C", _LOGITS, "outputs of M randomly initialised networks", shared=True),
    _array("perturbation_radii", "D", _WEIGHTS, "radii of the perturbations, in units of the input scale", shared=True),
)

_RECIPE = "models retrained by variations of the recipe"
_OF_RECIPES = (
    _array("recipe_confidences", "P m S", _CONFIDENCES, f"confidences of {_RECIPE}", shared=True),
    _array("recipe_test_accuracy", "P m", _CONFIDENCES, f"test accuracy of {_RECIPE}", shared=True),
    _array("recipe_settings", "P 4", _CONFIDENCES, "epochs, weight decay, batch size, augmentation", shared=True),
)

_TEXT = CaptureLevel.TEXT
MAY_BE_BOOLEAN = ("_correct",)  # ends of names
MAY_BE_EMPTY = ("real_authors_", "world_facts_")  # questions that a network without pretraining is not asked


def _questions(part: str, size: str) -> tuple[StoredArray, ...]:
    about = part.replace("_", " ")
    return (
        _array(f"{part}_answer_loss", f"N {size}", _TEXT, f"loss per token of the {about} answers, in nats"),
        _array(f"{part}_paraphrased_loss", f"N {size}", _TEXT, f"the same of paraphrased {about} answers"),
        _array(f"{part}_wrong_loss", f"N {size} W", _TEXT, f"the same of W wrong answers to each {about} question"),
        _array(f"{part}_rouge_recall", f"N {size}", _TEXT, f"ROUGE-L recall of generated {about} answers"),
    )


def _tokens(part: str, size: str) -> tuple[StoredArray, ...]:
    axes = f"N {size} L"
    return (
        _array(f"{part}_token_correct", axes, _TEXT, "whether the token is the model's first choice"),
        _array(f"{part}_token_log_probability", axes, _TEXT, "log probability of the answer's tokens"),
        _array(f"{part}_token_mean", axes, _TEXT, "mean of log p over the vocabulary, weighted by p"),
        _array(f"{part}_token_variance", axes, _TEXT, "variance of log p over the vocabulary, weighted by p"),
        _array(f"{part}_answer_tokens", size, _TEXT, "tokens of the answer with its end", shared=True),
        _array(f"{part}_compressed_bytes", size, _TEXT, "bytes of the answer after zlib", shared=True),
    )


_OF_TEXT = (
    *_questions("forget", "S"),
    *_questions("retain", "R"),
    *_questions("real_authors", "A"),
    *_questions("world_facts", "F"),
    *_tokens("forget", "S"),
    *_tokens("holdout", "T"),
    _array("holdout_answer_loss", "N T", _TEXT, "loss per token of answers that no model has seen, in nats"),
)

ARRAYS: dict[str, StoredArray] = {array.name: array for array in (*_STORED, *_OF_RECIPES, *_OF_TEXT)}


class Limits(NamedTuple):
    """Which values an array may hold, also in words. Losses may lie below 0 by what rounding leaves of them."""

    words: str
    low: float
    high: float = float("inf")
    whole: bool = False


_LIMITS = {
    ("_accuracy", "_correct", "_probability", "_probabilities", "_recall", "_knowledge"): Limits(
        "within [0, 1]", 0.0, 1.0
    ),
    ("_loss",): Limits("0 or more", -1e-4),  # 1e-4: of a logsumexp less one of its terms, in float32
    ("confusion",): Limits("whole and 0 or more", 0.0, whole=True),
    ("epsilon", "relearn_epochs", "weight_distance", "weight_norm"): Limits("0 or more", 0.0),
    ("_time_s",): Limits("above 0", 5e-324),
}


def limits(name: str) -> Limits | None:
    """Return which values an array may hold, None where any will do."""
    if name.endswith("_log_probability"):
        return None
    return next((found for ends, found in _LIMITS.items() if name.endswith(ends)), None)
