"""What one retraining takes, as preparation measures it."""

from lethe.preparation.single_models import measure_retraining
from tests.lethe.training.test_stacked_training import NETWORK, job


def test_stacked_training_gives_the_fastest_retraining() -> None:
    found = measure_retraining(job(batch_size=1, epochs=8), 0)
    assert 0 < found["fastest_cpu_s"] < found["retraining_cpu_s"] / 2


def test_network_that_is_not_stacked_has_the_plain_loop_alone() -> None:
    found = measure_retraining(job(NETWORK | {"name": "small_cnn", "options": {"widths": [4]}}, augmentation="flip"), 0)
    assert found["fastest_cpu_s"] == found["retraining_cpu_s"]
