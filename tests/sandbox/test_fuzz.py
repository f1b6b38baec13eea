"""Every reader of hostile bytes, with valid files changed at random: read or refused, in little time and memory.

`python -m benchmarks.sandbox.fuzz` goes on for as long as it is told to.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.sandbox.fuzz import TARGETS, examine, mutated

_NUMBER = st.integers(0, 2**16 - 1)
_PIECE = st.binary(max_size=8) | st.sampled_from([b"\xff" * 4, b"\xff" * 8, b"\x7f", bytes(8), b"[" * 500, b"\n" * 500])
_EDIT = st.tuples(st.integers(0, 4), _NUMBER, _NUMBER, _PIECE)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_read(name: str) -> None:
    for seed in TARGETS[name].seeds:
        examine(TARGETS[name], seed)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_changed_bytes_are_read_or_refused(name: str, data: st.DataObject) -> None:
    target = TARGETS[name]
    seed, other = data.draw(st.sampled_from(target.seeds)), data.draw(st.sampled_from(target.seeds))
    examine(target, mutated(seed, data.draw(st.lists(_EDIT, max_size=8)), other))


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(name: str, content: bytes) -> None:
    examine(TARGETS[name], content)
