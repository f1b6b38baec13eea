"""Whose fault a run was and what is said of it, its limits and its log, from facts alone."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.runtime.error_classes import Blame, ErrorClass
from sandbox.backends.bubblewrap import masked_paths
from sandbox.frame_reader import FrameState, WeightsProblem
from sandbox.policy import InvalidPolicy, Isolation, Mount, RunPolicy
from sandbox.run_request import CUT, readable_log
from sandbox.verdict import Context, ExitFacts, KillReason, judge

POLICY = RunPolicy()
CONTEXT = Context(
    limits={**POLICY.to_dict(), "cpu_allowance_s": POLICY.cpu_allowance_s},
    files={"submission.py": 100},
    tensors=frozenset({"fc.weight"}),
    entry_file="submission.py",
)


def claim(**fields: Any) -> ExitFacts:
    return ExitFacts(frame=FrameState.FAULT, claim=fields)


@pytest.mark.parametrize(
    ("facts", "error_class"),
    [
        (ExitFacts(kill_reason=KillReason.WALL_TIME), "timeout"),
        (ExitFacts(kill_reason=KillReason.IDLE_TIME), "idle"),
        (ExitFacts(kill_reason=KillReason.CPU_TIME), "time-limit"),
        (ExitFacts(kill_reason=KillReason.MEMORY), "out-of-memory"),
        (ExitFacts(kill_reason=KillReason.LOG), "log-limit"),
        (ExitFacts(kill_reason=KillReason.CLOSED_FRAME), "no-weights"),
        (ExitFacts(exit_code=0), "no-weights"),
        (ExitFacts(frame=FrameState.PARTIAL, exit_code=0), "no-weights"),
        (ExitFacts(frame=FrameState.MALFORMED), "wrong-weights"),
        (ExitFacts(signal=11), "killed"),
        (ExitFacts(signal=24), "time-limit"),
        (ExitFacts(signal=9, oom_kills=1), "out-of-memory"),
        (ExitFacts(exit_code=1, refused_forks=3), "process-limit"),
        (claim(**{"class": "out-of-memory"}), "out-of-memory"),
        (claim(**{"class": "host-fault"}), "exception"),
        (claim(**{"class": ["timeout"]}), "exception"),
        (claim(), "exception"),
        # what was measured outweighs what was sent
        (replace(claim(**{"class": "exception"}), kill_reason=KillReason.WALL_TIME), "timeout"),
        (ExitFacts(frame=FrameState.WEIGHTS, kill_reason=KillReason.CPU_TIME), "time-limit"),
    ],
)
def test_facts_give_the_participants_error_class(facts: ExitFacts, error_class: str) -> None:
    verdict = judge(facts, CONTEXT)
    assert (verdict.error_class, verdict.fault) == (error_class, Blame.PARTICIPANT)
    assert verdict.message


def test_whole_weights_count_however_the_process_ended() -> None:
    assert judge(ExitFacts(frame=FrameState.WEIGHTS, signal=9), CONTEXT).outcome == "weights"


def test_a_wrong_return_counts_on_hidden_data_and_is_refused_on_the_sample() -> None:
    facts = ExitFacts(frame=FrameState.WEIGHTS, is_wrong_return=True)
    assert judge(facts, CONTEXT).outcome == "weights"
    verdict = judge(facts, replace(CONTEXT, open_log=True))
    assert (verdict.error_class, verdict.fault) == ("wrong-return", Blame.PARTICIPANT)


def test_problem_with_weights_names_the_tensor() -> None:
    facts = ExitFacts(frame=FrameState.WEIGHTS, problem=WeightsProblem(kind="non-finite", tensor="fc.weight"))
    assert "'fc.weight'" in judge(facts, CONTEXT).message


def test_host_error_outweighs_everything_and_is_not_shown() -> None:
    verdict = judge(ExitFacts(frame=FrameState.WEIGHTS, host_error="OSError: /srv/secret"), CONTEXT)
    assert (verdict.error_class, verdict.fault) == ("host-fault", Blame.HOST)
    assert "secret" not in verdict.message


def test_claimed_line_is_kept_for_own_files_only() -> None:
    own = judge(claim(file="submission.py", line=7, mro=["ValueError"]), CONTEXT)
    assert (own.file, own.line, own.exception_type) == ("submission.py", 7, "ValueError")
    assert "submission.py, line 7" in own.message
    other = judge(claim(file="../../etc/passwd", line=7), CONTEXT)
    assert (other.file, other.line) == ("", 0)


def test_a_line_that_the_file_has_not_is_not_repeated() -> None:
    after_the_last = judge(claim(file="submission.py", line=101), CONTEXT)  # where a file that was cut off fails
    assert after_the_last.line == 101
    for line in (102, 314_159, 0, -1, True):
        told = judge(claim(file="submission.py", line=line), CONTEXT)
        assert (told.file, told.line) == ("", 0)
        assert str(line) not in told.message


def test_difference_is_told_in_names_of_the_original_model() -> None:
    told = judge(claim(**{"class": "wrong-weights", "detail": {"kind": "shape", "tensor": "fc.weight"}}), CONTEXT)
    assert "'fc.weight' has another shape" in told.message
    assert "vocabulary" not in told.message
    extra = judge(claim(**{"class": "wrong-weights", "detail": {"kind": "extra"}}), CONTEXT)
    assert "keep tied layers tied, and merge adapters" in extra.message
    context = replace(CONTEXT, tensors=frozenset({"embedding.weight"}))
    cut = claim(**{"class": "wrong-weights", "detail": {"kind": "shape", "tensor": "embedding.weight"}})
    assert "The vocabulary must not change." in judge(cut, context).message
    hidden = judge(claim(**{"class": "wrong-weights", "detail": {"kind": "shape", "tensor": "the data"}}), CONTEXT)
    assert "the data" not in hidden.message


_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["class", "mro", "file", "line", "detail", "other"]), _VALUE))
def test_no_claim_raises_or_says_more_than_is_known_here(fields: dict[str, Any]) -> None:
    verdict = judge(ExitFacts(frame=FrameState.FAULT, claim=fields), CONTEXT)
    assert verdict.fault is Blame.PARTICIPANT
    assert verdict.message.startswith(ErrorClass(verdict.error_class).message.partition("{")[0])
    assert verdict.file in {"", "submission.py"}
    assert len(verdict.message) < 400


def test_what_is_shown_is_counted_in_bits() -> None:
    timeout = judge(ExitFacts(kill_reason=KillReason.WALL_TIME), CONTEXT)
    failed = judge(claim(file="submission.py", line=7, mro=["ValueError"]), CONTEXT)
    assert timeout.detail_bits == 0
    assert 12 < failed.detail_bits < 15


MISSING = {"class": "exception", "mro": ["ModuleNotFoundError", "ImportError", "Exception"], "module": "timm.layers"}


def test_a_missing_module_is_named_on_public_data_only() -> None:
    shown = judge(claim(**MISSING), replace(CONTEXT, open_log=True)).message
    assert "'timm.layers' is not installed on the server, and a run has no network" in shown
    hidden = judge(claim(**MISSING), CONTEXT).message
    assert "timm" not in hidden
    assert "not installed" in hidden
    spoken = judge(claim(**MISSING | {"module": "a b"}), replace(CONTEXT, open_log=True)).message
    assert "a b" not in spoken


def test_a_name_that_a_module_lacks_is_no_missing_module() -> None:
    message = judge(claim(**{"class": "exception", "mro": ["ImportError", "Exception"]}), CONTEXT).message
    assert "not installed" not in message
    assert "version" in message


@pytest.mark.parametrize(
    ("sent_as", "file", "named"),
    [
        ("mine.py", "submission.py", "mine.py, line 3"),
        ("mine.ipynb", "cell-07.py", "mine.ipynb, cell 7, line 3"),
        ("mine.zip", "methods/scrub.py", "methods/scrub.py, line 3"),
    ],
)
def test_a_failure_names_the_file_that_was_sent(sent_as: str, file: str, named: str) -> None:
    context = replace(CONTEXT, files={file: 9}, sent_as=sent_as)
    assert f"See {named}." in judge(claim(**{"class": "exception", "file": file, "line": 3}), context).message


def test_open_run_does_not_send_to_the_run_that_it_is() -> None:
    facts = claim(**{"class": "exception", "mro": ["ValueError"]})
    assert "public sample" in judge(facts, CONTEXT).message
    assert "public sample" not in judge(facts, replace(CONTEXT, open_log=True)).message


def test_missing_library_names_those_that_are_there() -> None:
    facts = claim(**{"class": "exception", "mro": ["ModuleNotFoundError", "ImportError"]})
    told = judge(facts, replace(CONTEXT, libraries=("torch", "numpy"))).message
    assert "These libraries are installed: torch, numpy." in told


@pytest.mark.parametrize(("name", "expected"), [("gaierror", True), ("URLError", True), ("KeyError", False)])
def test_missing_network_is_named_where_it_is_the_cause_on_public_data(name: str, expected: bool) -> None:
    facts = claim(**{"class": "exception", "mro": [name, "OSError", "Exception"]})
    assert ("no network in here" in judge(facts, replace(CONTEXT, open_log=True)).message) == expected
    assert "no network" not in judge(facts, CONTEXT).message


@pytest.mark.parametrize(
    ("overflowing", "fault", "told"),
    [({"fc.weight"}, Blame.ORGANISER, "original model itself"), ({"fc.bias"}, Blame.PARTICIPANT, "'fc.weight'")],
)
def test_an_overflow_of_half_precision_is_whose_the_tensor_is(overflowing: set[str], fault: Blame, told: str) -> None:
    facts = ExitFacts(frame=FrameState.WEIGHTS, problem=WeightsProblem(kind="half-precision", tensor="fc.weight"))
    found = judge(facts, replace(CONTEXT, overflowing=frozenset(overflowing)))
    assert (found.error_class, found.fault) == ("half-precision-overflow", fault)
    assert told in found.message
    assert ("original model itself" in found.message) == (fault is Blame.ORGANISER)


def test_every_class_that_a_run_ends_with_says_what_to_do() -> None:
    never = (ErrorClass.WORKER_LOST, ErrorClass.NOT_SCORED, ErrorClass.EVALUATION_TIMEOUT)
    ends = [one for one in ErrorClass if one not in never]
    assert [one for one in ends if not one.message or not one.advice] == []
    assert {one for one in ErrorClass if one.blame is not Blame.PARTICIPANT} == {
        *(ErrorClass.STOPPED, ErrorClass.HOST_FAULT, ErrorClass.WORKER_LOST, ErrorClass.NOT_SCORED)
    }
    assert ErrorClass.from_name("cpu-time") is None, "of an earlier version"


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
