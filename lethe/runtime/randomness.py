"""Makes every source of a program's randomness depend on the run: seeds are mixed with the run's.

The seeds that the program sets itself, and those that it leaves to chance, differ from run to run and are the same
whenever a run is repeated. A run has no number here: a seed mixed with one would give the number away. A Python process
that the program starts finds the run's seed in its environment; torch and numpy are imported late, since many such
processes need neither.
"""

import hashlib
import importlib
import os
import random
from collections.abc import Callable
from typing import Any, Self

SEED_BITS = 32  # what every generator takes
PINNED = 20_231_130  # any number
VARIABLE = "RANDOMNESS_OF_RUN"  # the run's seed, "mixes" and "pinned", for the processes that a program starts


class Randomness:
    """The randomness of one run. `install` lets torch, numpy and random ask it for each seed.

    seed: the run's. mixes: whether seeds that the program sets are mixed with it; else it decides only what is left to
    chance. After `pin`, every generator, and every seed set from then on, has one fixed value, so that two stretches of
    a program can be compared; only `can_pin` keeps the generators for it.
    """

    def __init__(self, *, seed: int, mixes: bool, can_pin: bool = False, is_pinned: bool = False) -> None:
        self._seed, self._mixes, self._can_pin = seed, mixes, can_pin
        self._chance = seed
        self._left_to_chance = 0
        self._is_pinned = is_pinned
        self._reseed: list[Callable[[], object]] = []  # of each generator that the program made

    @classmethod
    def of_child(cls, said: str, *, started_as: object) -> Self:
        """Return the randomness of a process that a run has started.

        said: what its environment holds under VARIABLE. started_as: what tells it from the run's other processes.
        """
        seed, *said_too = said.split()
        child = cls(seed=int(seed), mixes="mixes" in said_too, is_pinned="pinned" in said_too)
        child._chance = _hashed(int(seed), started_as)
        return child

    def mixed(self, seed: Any) -> Any:
        """Return the seed to use in place of the program's own; None is left to chance."""
        if self._is_pinned:
            return PINNED
        if seed is None:
            self._left_to_chance += 1
            return _hashed(self._chance, self._left_to_chance)
        return _hashed(seed, self._seed) if self._mixes else seed

    def pin(self) -> None:
        """Give every generator of the process the same state, whatever it was, and every later seed the same value."""
        self._is_pinned = True
        self._tell_children()
        random.seed(PINNED)
        importlib.import_module("numpy").random.seed(PINNED)
        importlib.import_module("torch").manual_seed(PINNED)
        for reseed in self._reseed:
            reseed()

    def install(self) -> None:
        """Change the functions of torch, numpy and random for the rest of this process."""
        self._tell_children()
        self.install_random()
        self.install_numpy()
        self.install_torch()

    def _tell_children(self) -> None:
        said = (str(self._seed), "mixes" * self._mixes, "pinned" * self._is_pinned)
        os.environ[VARIABLE] = " ".join(filter(None, said))

    def _keep(self, reseed: Callable[[], object]) -> None:
        if self._can_pin and not self._is_pinned:
            self._reseed.append(reseed)

    def install_random(self) -> None:
        """Change Python's own functions."""
        seeding = random.Random.seed

        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            seeding(generator, self.mixed(a), version)
            self._keep(lambda: seeding(generator, PINNED))

        random.Random.seed = seed  # type: ignore[method-assign,assignment]
        random.seed = random._inst.seed

    def install_numpy(self) -> None:
        """Change numpy's functions."""
        numpy: Any = importlib.import_module("numpy.random")
        seeding, default_rng, state = numpy.seed, numpy.default_rng, numpy.RandomState

        def seed(seed: Any = None) -> None:
            seeding(self.mixed(seed))

        def made(seed: Any = None) -> Any:
            if isinstance(seed, numpy.Generator | numpy.BitGenerator):
                return default_rng(seed)
            own = (seed.entropy, seed.spawn_key) if isinstance(seed, numpy.SeedSequence) else seed
            changes = own is None or self._mixes or self._is_pinned
            generator = default_rng(self.mixed(own) if changes else seed)
            self._keep(lambda: setattr(generator.bit_generator, "state", default_rng(PINNED).bit_generator.state))
            return generator

        class RandomState(state, metaclass=_like(state)):  # type: ignore[misc,valid-type,metaclass]
            def __init__(inner, seed: Any = None) -> None:  # noqa: N805
                super().__init__(seed if isinstance(seed, numpy.BitGenerator) else self.mixed(seed))
                self._keep(lambda: inner.seed(PINNED))

        numpy.seed, numpy.default_rng, numpy.RandomState = seed, made, RandomState

    def install_torch(self) -> None:
        """Change torch's functions."""
        torch: Any = importlib.import_module("torch")
        seeding, generators = torch.random.manual_seed, torch.Generator

        def manual_seed(seed: Any) -> Any:
            return seeding(self.mixed(int(seed)))

        def chance() -> int:
            chosen: int = self.mixed(None)
            seeding(chosen)
            return chosen

        class Generator(generators, metaclass=_like(generators)):  # type: ignore[misc,valid-type,metaclass]
            def __init__(inner, *_arguments: Any, **_options: Any) -> None:  # noqa: N805
                self._keep(lambda: generators.manual_seed(inner, PINNED))

            def manual_seed(inner, seed: int) -> Any:  # noqa: N805
                super().manual_seed(self.mixed(int(seed)))
                return inner

            def seed(inner) -> int:  # noqa: N805
                chosen: int = self.mixed(None)
                super().manual_seed(chosen)
                return chosen

        torch.manual_seed = torch.random.manual_seed = manual_seed
        torch.seed = torch.random.seed = chance
        torch.Generator = Generator
        for name in ("manual_seed", "manual_seed_all"):
            setattr(torch.cuda, name, self._of_gpu(getattr(torch.cuda, name)))

    def _of_gpu(self, seeding: Callable[[int], None]) -> Callable[[int], None]:
        def manual_seed(seed: int) -> None:
            seeding(self.mixed(int(seed)))

        return manual_seed


def _like(kind: type) -> type:
    """Return the metaclass of a class that takes the place of `kind`, whose own objects count as its objects."""

    class Like(type(kind)):  # type: ignore[misc]
        def __instancecheck__(cls, value: object) -> bool:
            return type.__instancecheck__(kind, value)

    return Like


def _hashed(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[: SEED_BITS // 8], "little")
