"""The readers of hostile bytes on valid files that are changed at random, as long as is asked.

python -m benchmarks.sandbox.fuzz [--seconds 60] [--seed 0] [--targets NAME ...]

An input that breaks a reader is written to the current folder. The readers are in tests/support/hostile_bytes.py.
"""

import random
import time
from pathlib import Path

from benchmarks.shared import options
from tests.support.hostile_bytes import TARGETS, Edit, examine, mutated


def main() -> None:
    given = options(__doc__, seconds=60, seed=0, targets=[*TARGETS])
    for name in given.targets:
        target, chance = TARGETS[name], random.Random(f"{name}-{given.seed}")
        deadline, count = time.monotonic() + given.seconds, 0
        while time.monotonic() < deadline:
            edits = [_edit(chance) for _ in range(chance.randint(0, 8))]
            data = mutated(chance.choice(target.seeds), edits, chance.choice(target.seeds))
            try:
                examine(target, data)
            except BaseException:
                Path(f"fuzz-{name}-{count}.bin").write_bytes(data)
                raise
            count += 1
        print(f"{name}: {count} inputs, none broke it", flush=True)


def _edit(chance: random.Random) -> Edit:
    pieces = (b"{a}" * 3000, b"f()\n" * 3000, b"![" * 3000, b"a." * 3000, b"\xff" * 8, bytes(8), b"[" * 300, b"\x80")
    piece = chance.choice(pieces) if chance.random() < 0.5 else chance.randbytes(chance.randint(1, 8))
    return chance.randrange(5), chance.randrange(2**16), chance.randrange(2**16), piece


if __name__ == "__main__":
    main()
