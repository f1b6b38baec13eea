"""Runs the file that a participant gets as a recipe says, and records it."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.utils.data import DataLoader

from lethe.methods.rendering import render
from tests.golden.trajectories.frame import Frame
from tests.golden.trajectories.recipes import AT_START, VALIDATED, Recipe
from tests.golden.trajectories.trace import Trace

SEED = 1234


def run(recipe: Recipe, frame: Frame, *, settled: bool = False) -> Trace:
    """Return what a recipe does to the frame's network."""
    module = ModuleType(f"trajectory_{recipe.method}")
    exec(compile(render(recipe.method, recipe.constants), f"{recipe.method}.py", "exec"), module.__dict__)
    loaders = frame.loaders(recipe.split, recipe.sizes)
    with as_stored():
        torch.manual_seed(SEED)
        np.random.seed(SEED)
        random.seed(SEED)
        net = frame.network().train()  # its construction draws too
        replace(module, recipe, loaders)
        with Trace(net, settled) as trace:
            module.unlearning(net, *loaders)
    return trace


def replace(module: ModuleType, recipe: Recipe, loaders: tuple[DataLoader[Any], ...]) -> None:
    for name, drawn in recipe.draws.items():
        if not hasattr(module, name):
            raise AttributeError(f"{recipe.method} has no function {name!r}")
        function = getattr(module, name)
        if drawn == VALIDATED:
            setattr(module, name, after_each(function, loaders[2]))
        else:
            setattr(module, name, at_start(function, torch.get_rng_state()) if drawn == AT_START else drawn)
    if hasattr(module, "DataLoader"):
        module.DataLoader = in_stored_order  # type: ignore[attr-defined]


def after_each(function: Any, loader: DataLoader[Any]) -> Any:
    """Return the function, followed by a pass over the loader, which draws a seed."""

    def called(*arguments: Any) -> None:
        function(*arguments)
        iter(loader)

    return called


def at_start(function: Any, state: torch.Tensor) -> Any:
    """Return the function, drawing as from this state of the generator."""

    def called(*arguments: Any) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            return function(*arguments)

    return called


def in_stored_order(dataset: Any, batch_size: int = 1, *, shuffle: bool = False, drop_last: bool = False) -> Any:
    return DataLoader(dataset, batch_size=batch_size, drop_last=drop_last)


@contextmanager
def as_stored() -> Iterator[None]:
    """Inside, numbers are float64, one thread computes them, and nothing is shuffled: permutations are identities."""
    threads, kind = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    try:
        with mock.patch.object(torch, "randperm", lambda n, **_: torch.arange(n)):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(kind)
