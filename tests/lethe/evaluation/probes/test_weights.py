import pytest
import torch
from torch import nn

from lethe.evaluation.probes.split_probes import parameter_arrays, weight_distances
from lethe.metrics.core.invalid_input import InvalidMetricInput


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def states(*seeds: int) -> list[dict[str, torch.Tensor]]:
    return [network(seed).state_dict() for seed in seeds]


def test_buffers_are_no_parameters():
    arrays = parameter_arrays(states(1)[0], network(0))
    assert set(arrays) == {"0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"}


def test_distances_equal_those_of_the_parameter_vectors():
    first, second = network(1), network(2)
    found = weight_distances(first, [first.state_dict()], [second.state_dict()])
    vectors = [torch.cat([p.detach().double().flatten() for p in net.parameters()]) for net in (first, second)]
    assert found["weight_distance"].tolist() == pytest.approx([float((vectors[0] - vectors[1]).norm())])
    assert found["weight_norm"].tolist() == pytest.approx([float(vectors[0].norm())])


def test_models_are_paired_by_number_and_one_stands_for_all():
    pairs = weight_distances(network(0), states(1, 2), states(3, 2))["weight_distance"]
    assert pairs[0] > 0.0
    assert pairs[1] == 0.0
    one = weight_distances(network(0), states(1), states(2, 3))
    assert one["weight_distance"].shape == one["weight_norm"].shape == (2,)


def test_half_precision_weights_are_read():
    half = {name: value.half() for name, value in states(1)[0].items()}
    assert weight_distances(network(0), [half], [half])["weight_distance"].tolist() == [0.0]


def test_unequal_numbers_of_models_are_refused():
    with pytest.raises(InvalidMetricInput, match="2 models cannot be paired with 3 retrained ones"):
        weight_distances(network(0), states(1, 2), states(3, 4, 5))


def test_state_dict_without_a_parameter_is_refused():
    state = states(1)[0]
    del state["2.bias"]
    with pytest.raises(InvalidMetricInput, match=r"lacks the parameter 2\.bias"):
        parameter_arrays(state, network(0))
