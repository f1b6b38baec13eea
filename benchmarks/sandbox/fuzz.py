"""Fuzz the readers of hostile bytes for as long as is asked.

python -m benchmarks.sandbox.fuzz [--seconds 60] [--seed 0] [TARGET ...]

With atheris installed (`pip install atheris`) its coverage steers the search; without it, valid files are changed at
random. An input that breaks a reader is written to the current folder, and the exit status is 1.
"""

import argparse
import importlib
import multiprocessing
import random
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

_PIECES = (
    b"{a}" * 3000,
    b"f()\n" * 3000,
    b"![" * 3000,
    b"a." * 3000,
    b"\xff\xff\xff\xff",
    bytes(8),
    b"\x7f",
    b"\xff" * 8,
    b"(",
    b"[" * 300,
    b"\n" * 300,
    b"\x80",
)
_TARGETS = "benchmarks.sandbox.fuzz_targets"
_READERS = ["sandbox", "server", "zipfile", "pickletools", "json", "ast"]


def main() -> None:
    """Fuzz each target in a process of its own, and say how many inputs it took."""
    targets = importlib.import_module(_TARGETS).TARGETS
    parser = argparse.ArgumentParser(description="fuzz the readers of hostile bytes")
    parser.add_argument("targets", nargs="*", help=f"default: all of {', '.join(targets)}")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(targets):
        parser.error(f"there is no target {min(unknown)!r}; there are {', '.join(targets)}")
    by = _with_atheris if find_spec("atheris") else _at_random
    broken = []
    for name in arguments.targets or targets:
        print(f"{name}: {arguments.seconds} s, {by.__name__.strip('_').replace('_', ' ')}", flush=True)
        # A fresh interpreter: atheris must see the readers' modules being imported, and ends its process by itself.
        process = multiprocessing.get_context("spawn").Process(
            target=by, args=(name,), kwargs={"seconds": arguments.seconds, "seed": arguments.seed}
        )
        process.start()
        process.join()
        if process.exitcode:
            broken.append(name)
    if broken:
        sys.exit(f"broken: {', '.join(broken)}")


def _at_random(name: str, *, seconds: int, seed: int) -> None:
    fuzzed = importlib.import_module(_TARGETS)
    target = fuzzed.TARGETS[name]
    chance = random.Random(f"{name}-{seed}")
    deadline, count = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        edits = [_edit(chance) for _ in range(chance.randint(0, 8))]
        data = fuzzed.mutated(chance.choice(target.seeds), edits, chance.choice(target.seeds))
        try:
            fuzzed.examine(target, data)
        except BaseException:
            path = Path(f"fuzz-{name}-{count}.bin")
            path.write_bytes(data)
            print(f"broken by {path}", file=sys.stderr)
            raise
        count += 1
    print(f"{name}: {count} inputs, none broke it", flush=True)


def _edit(chance: random.Random) -> tuple[int, int, int, bytes]:
    piece = chance.choice(_PIECES) if chance.random() < 0.5 else chance.randbytes(chance.randint(1, 8))
    return chance.randrange(5), chance.randrange(2**16), chance.randrange(2**16), piece


def _with_atheris(name: str, *, seconds: int, seed: int) -> None:
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=_READERS):
        target = importlib.import_module(_TARGETS).TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="lethe-fuzz-") as folder:
        for number, example in enumerate(target.seeds):
            Path(folder, str(number)).write_bytes(example)
        options = [
            f"-max_total_time={seconds}",
            f"-seed={seed + 1}",
            "-timeout=30",
            "-rss_limit_mb=4096",
            "-verbosity=0",
        ]
        atheris.Setup(["fuzz", *options, "-max_len=65536", f"-artifact_prefix=fuzz-{name}-", folder], target.check)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
