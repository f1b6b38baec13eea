"""What a score compares."""

from dataclasses import dataclass

import numpy as np

from lethe.metrics.scoring.arrays import Float64


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """What N models of one side gave on one split.

    confidences: shape (n_models, n_examples), the logit-scaled confidence of every forget example.
    retain_accuracy, test_accuracy: shape (n_models,), within [0, 1]; None where not measured.
    """

    confidences: Float64
    retain_accuracy: Float64 | None = None
    test_accuracy: Float64 | None = None

    def __repr__(self) -> str:
        return f"ModelOutputs(confidences {np.shape(self.confidences)})"
