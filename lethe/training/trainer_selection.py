"""Many models of one job: the way of training that suits the network and the device."""

from collections.abc import Mapping

from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.cuda_graph_training import can_graph, train_graphed
from lethe.training.stacked_training import can_stack, train_stacked
from lethe.training.trainer import Job, OnEpoch, OnNote, State, TrainingJob, stack_states


def train_models(
    job: TrainingJob,
    seeds: Mapping[int, int],
    *,
    checkpoints: TrainingCheckpoints | None = None,
    on_epoch: OnEpoch | None = None,
    on_note: OnNote | None = None,
) -> State:
    """Return the state_dicts of all models, each tensor stacked [models, ...] in the order of `seeds`.

    seeds: index of a model -> its seed. checkpoints: where models in training are kept; stacked perceptrons, which
    take a second, are not.
    """
    if can_stack(job):
        return train_stacked(job, list(seeds.values()), on_epoch=on_epoch)
    if can_graph(job):
        return train_graphed(job, seeds, checkpoints=checkpoints, on_epoch=on_epoch, on_note=on_note)
    return train_in_turn(job, seeds, checkpoints=checkpoints, on_epoch=on_epoch)


def train_in_turn(
    job: Job,
    seeds: Mapping[int, int],
    *,
    checkpoints: TrainingCheckpoints | None = None,
    on_epoch: OnEpoch | None = None,
) -> State:
    """Train one model after the other by the plain loop."""
    return stack_states(
        [train_or_resume(job, index, seed, checkpoints=checkpoints, on_epoch=on_epoch) for index, seed in seeds.items()]
    )


def train_or_resume(
    job: Job, index: int, seed: int, *, checkpoints: TrainingCheckpoints | None = None, on_epoch: OnEpoch | None = None
) -> State:
    """Return one trained model, going on from its last kept epoch."""
    kept = checkpoints.finished(index) if checkpoints else None
    if kept is not None:
        _tell(on_epoch, job.recipe.epochs)
        return kept
    training = job.start(seed)
    if checkpoints:
        checkpoints.resume(training, index)
        _tell(on_epoch, training.epoch)
    while training.epoch < job.recipe.epochs:
        training.run_epoch()
        if checkpoints:
            checkpoints.after_epoch(training, index)
        _tell(on_epoch, 1)
    state = training.state()
    if checkpoints:
        checkpoints.model_done(index, state)
    return state


def _tell(on_epoch: OnEpoch | None, n_epochs: int) -> None:
    if on_epoch and n_epochs:
        on_epoch(n_epochs)
