import numpy as np

from lethe.metrics.outputs.predictions import activation_l1, disagreement


def test_distances_of_certain_and_opposite_predictions():
    u, r = np.tile([1.0, 0.0], (2, 3, 1)), np.tile([0.0, 1.0], (2, 3, 1))
    assert (activation_l1(u, r).value, disagreement(u, r).value) == (2.0, 1.0)


def test_disagreement_counts_predictions_not_class_numbers():
    u, r = np.eye(10)[[[0, 0]]], np.eye(10)[[[9, 0]]]
    assert disagreement(u, r).value == 0.5
