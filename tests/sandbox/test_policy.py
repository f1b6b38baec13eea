"""Limits, logs and masked paths of a run, from facts alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.backends.bubblewrap import masked_paths
from sandbox.policy import InvalidPolicy, Isolation, Mount, RunPolicy
from sandbox.run_request import CUT, readable_log


def test_policy_is_plain_json() -> None:
    policy = RunPolicy(
        cpus=(0, 1),
        mounts=(Mount("/usr/share/x", "/opt/x"),),
        isolation=Isolation.SHARD,
        device="cuda",
        devices=("/dev/x",),
    )
    values = json.loads(json.dumps(policy.to_dict()))
    assert values["mounts"] == [{"source": "/usr/share/x", "target": "/opt/x"}]
    assert (values["cpus"], values["devices"], values["isolation"]) == ([0, 1], ["/dev/x"], "shard")
    assert set(values) == set(vars(policy))


@pytest.mark.parametrize(
    "values",
    [
        {"wall_time_s": 0},
        {"wall_time_s": float("nan")},
        {"wall_time_s": True},
        {"idle_time_s": -1},
        {"memory_mib": 1},
        {"memory_mib": 99.5},
        {"processes": 0},
        {"cpus": (-1,)},
        {"mounts": (Mount("/etc", "/data/etc"),)},
        {"mounts": (Mount("/etc", "relative"),)},
        {"mounts": (Mount("/etc", "/opt/../data"),)},
    ],
)
def test_impossible_value_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicy):
        RunPolicy(**values)


def test_terminal_sequences_and_direction_marks_go() -> None:
    log = b"\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m\x00 \xe2\x80\xaetxt\n\tkept"
    assert readable_log(log) == "red\ufffd \ufffdtxt\n\tkept"


def test_progress_bar_keeps_its_last_state() -> None:
    assert readable_log(b"  0%\r 50%\r100%\nnext\r\nline") == "100%\nnext\nline"


def test_long_log_keeps_its_beginning_and_its_end() -> None:
    text = readable_log(b"a" * 5000 + b"b" * 50_000, max_chars=1000)
    assert len(text) == 1000
    assert text.startswith("a" * 200)
    assert CUT in text
    assert text.endswith("b" * 700)


@given(st.binary(max_size=2000), st.integers(1, 300))
def test_any_bytes_become_short_clean_text(log: bytes, max_chars: int) -> None:
    text = readable_log(log, max_chars=max_chars)
    assert len(text) <= max(max_chars, len(CUT))
    assert all(character in "\n\t" or character.isprintable() or ord(character) > 159 for character in text)
    text.encode()


@pytest.mark.parametrize("piece", [b"x", b"x\r", b"\x1b[0", b"\x1b]x", b"\x1b[ ", b"0;"], ids=repr)
def test_time_grows_with_the_length_alone(piece: bytes) -> None:
    log = b"\x1b[" + piece * (4 * 2**20 // len(piece))  # with a square in it, this would last for hours
    assert len(readable_log(log)) <= 16_384


def installed(site: Path) -> Path:
    for name in ("server", "worker", "torch", "lethe-1.dist-info"):
        (site / name).mkdir(parents=True)
    (site / "__editable__.lethe-1.pth").touch()
    return site


def test_own_packages_are_masked_and_others_are_not(tmp_path: Path) -> None:
    site = installed(tmp_path / "environment/lib/site-packages")
    assert masked_paths(site, prefix=tmp_path / "python") == [
        ("/opt/site/__editable__.lethe-1.pth", False),
        ("/opt/site/lethe-1.dist-info", True),
        ("/opt/site/server", True),
        ("/opt/site/worker", True),
    ]


def test_packages_in_system_library_folders_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = installed(tmp_path / "lib/python3/site-packages")
    monkeypatch.setattr("sandbox.backends.bubblewrap._SYSTEM_LIBRARIES", (str(tmp_path / "lib"),))
    masked = {target for target, _ in masked_paths(site, prefix=tmp_path / "python")}
    assert {"/opt/site/server", f"{site}/server"} <= masked


def test_packages_in_the_interpreters_folder_are_masked(tmp_path: Path) -> None:
    site = installed(tmp_path / "python/lib/site-packages")
    (tmp_path / "link").symlink_to(tmp_path / "python")
    for prefix in (tmp_path / "python", tmp_path / "link"):
        masked = {target for target, _ in masked_paths(site, prefix=prefix)}
        assert {"/opt/site/server", "/opt/python/lib/site-packages/server"} <= masked
        assert len(masked) == 8
