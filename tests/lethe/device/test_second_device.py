"""Programs on a second device: nothing stays on the CPU by mistake, and the values are the CPU's.

The device refuses what a CUDA device refuses (tests/support/second_device.py). What no test sees without a GPU is
listed in docs/operators/scale.md.
"""

import copy
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lethe.competition.file import Training
from lethe.data.stored_sets import StoredSet
from lethe.evaluation.image_evaluation import SplitEvaluator
from lethe.evaluation.probes.model_probes import mean_loss, relearn_epochs
from lethe.evaluation.probes.split_probes import perturbed_accuracy
from lethe.methods.catalogue import method_ids
from lethe.training.many_models import train_in_turn
from lethe.training.trainer import TrainingJob
from tests.lethe.methods.tiny_data import SMALL, make_problem, network_description
from tests.support.second_device import NAME, MixedDevices, second_device
from tests.support.tiny_language import PERSONS, REFUSAL, answer_loader, get_tokens, tiny_network


def stays(device: str, tensors: list[Tensor]) -> bool:
    return all(tensor.device.type == device for tensor in tensors)


def forgetful(net: nn.Module, retain_loader: object, forget_loader: object, val_loader: object) -> None:
    """Train without moving a batch to the network's device."""
    for sample in retain_loader:  # type: ignore[attr-defined]
        nn.functional.cross_entropy(net(sample["image"]), sample["label"]).backward()


def test_method_that_moves_no_batch_is_noticed() -> None:
    problem = make_problem("small_cnn", sizes=SMALL, batch_size=8)
    with second_device() as device, pytest.raises(MixedDevices):
        forgetful(problem.net.to(device), *problem.data)


@pytest.mark.parametrize("method_id", method_ids())
def test_method_runs_on_the_device_of_its_network(method_id: str) -> None:
    unlearning = import_module(f"lethe.methods.{method_id}").unlearning
    here, there = (make_problem("small_cnn", sizes=SMALL, batch_size=8) for _ in range(2))
    torch.manual_seed(0)
    unlearning(here.net, *here.data)
    with second_device() as device:
        there.net.to(device)
        torch.manual_seed(0)
        unlearning(there.net, *there.data)
        assert_same_on(there.net, here.net)


def answers(persons: tuple[tuple[str, str, str], ...], *, refusals: bool = False) -> object:
    """Return a loader of two answers a batch."""
    other = [get_tokens(person, REFUSAL) for person in persons] if refusals else []
    return answer_loader([get_tokens(person) for person in persons], other, batch_size=2)


@pytest.mark.parametrize("method_id", method_ids("causal-lm"))
def test_text_method_runs_on_the_device_of_its_network(method_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, here = import_module(f"lethe.methods.text.{method_id}"), tiny_network()
    there = copy.deepcopy(here)
    monkeypatch.setattr(module, "EPOCHS", 1)

    def unlearn(net: nn.Module) -> None:
        torch.manual_seed(0)
        module.unlearning(net, answers(PERSONS[4:6]), answers(PERSONS[6:], refusals=True), answers(PERSONS[:2]))

    unlearn(here)
    with second_device() as device:
        there.to(device)
        unlearn(there)
        assert_same_on(there, here)


def assert_same_on(there: nn.Module, here: nn.Module) -> None:
    state = there.state_dict()
    assert stays(NAME, list(state.values()))
    for name, wanted in here.state_dict().items():
        assert torch.allclose(state[name].cpu(), wanted, rtol=1e-4, atol=1e-6), name


DESCRIPTION = network_description("small_cnn")


def stored(seed: int, n: int = 12) -> StoredSet:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, *DESCRIPTION["input_shape"]), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, DESCRIPTION["n_classes"], (n,), generator=generator)
    return StoredSet(images=images, labels=labels, ids=torch.arange(n), persons=torch.arange(n))


def test_evaluation_and_capture_give_the_values_of_the_cpu() -> None:
    sets = {name: stored(seed) for seed, name in enumerate(("forget", "retain", "test"))}
    state = make_problem("small_cnn", sizes=SMALL).net.state_dict()
    here = SplitEvaluator(DESCRIPTION, sets, levels=(1, 2, 3), batch_size=5).evaluate_state(state)
    with second_device() as device:
        there = SplitEvaluator(DESCRIPTION, sets, levels=(1, 2, 3), batch_size=5, device=device).evaluate_state(state)
    assert there.captured.keys() == here.captured.keys() > {"forget_logits"}
    assert np.allclose(there.confidences, here.confidences, atol=1e-5)
    assert (there.retain_accuracy, there.test_accuracy) == (here.retain_accuracy, here.test_accuracy)
    for name, values in here.captured.items():
        assert np.allclose(there.captured[name], values, atol=1e-3), name


def probe(net: nn.Module, images: Tensor, labels: Tensor) -> tuple[list[float], int]:
    state = net.state_dict()
    accuracy = perturbed_accuracy(net, state, images, labels, input_scale=1.0, copies=2)
    epochs = relearn_epochs(
        net, state, images, labels, original_loss=0.5 * mean_loss(net, images, labels), learning_rate=0.1, max_epochs=4
    )
    return accuracy.ravel().tolist(), epochs


def test_probes_give_the_values_of_the_cpu() -> None:
    net, data = make_problem("mlp", sizes=SMALL).net, stored(0)
    images = data.images.float() / 128 - 1
    wanted = probe(net, images, data.labels)
    with second_device() as device:
        assert probe(net.to(device), images.to(device), data.labels.to(device)) == wanted


@pytest.mark.parametrize(
    "recipe", [{}, {"optimizer": "adamw"}, {"augmentation": "crop-flip"}, {"label_smoothing": 0.1}]
)
def test_training_gives_the_weights_of_the_cpu(recipe: dict[str, object]) -> None:
    data = stored(0)
    settings = Training.model_validate({"epochs": 2, "learning_rate": 0.01, "batch_size": 5} | recipe)

    def trained(device: str) -> dict[str, Tensor]:
        job = TrainingJob.on_device(DESCRIPTION, settings, data.images, data.labels, device=device)
        return train_in_turn(job, {0: 1, 1: 2})

    wanted = trained("cpu")
    with second_device() as device:
        found = {name: values.cpu() for name, values in trained(device).items()}
    for name, values in wanted.items():
        assert torch.allclose(found[name], values, rtol=1e-4, atol=1e-6), name
