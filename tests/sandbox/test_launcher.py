"""Runs in a real sandbox: weights out, each failure under its own name."""

import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load

from lethe.runtime.error_classes import Blame, warnings_in
from sandbox.errors import BackendUnavailable, InvalidRequest
from sandbox.launcher import EntryPoint, Launcher, RunRequest, Sandbox, SandboxSpec

from .conftest import GOOD, TEST_POLICY, Submit, write_submission

NOTHING = "def unlearning(net, retain, forget, validation):\n    pass\n"


def body(*lines: str) -> str:
    return "def unlearning(net, retain, forget, validation):\n" + "".join(f"    {line}\n" for line in lines)


def test_good_submission_returns_weights(submit: Submit) -> None:
    result = submit(GOOD, seed=1)
    assert result.verdict.fault is Blame.NONE, result.facts.host_error or result.log
    assert result.weights is not None
    assert len(load(result.weights)) == 4
    assert 0 < result.wall_time_s < TEST_POLICY.wall_time_s


def test_same_seed_gives_same_bits_and_another_seed_others(submit: Submit) -> None:
    first, second, other = submit(GOOD, seed=1), submit(GOOD, seed=1), submit(GOOD, seed=2)
    assert first.weights == second.weights
    assert first.weights != other.weights


def test_doing_nothing_returns_the_original_model(submit: Submit, split: Path) -> None:
    assert submit(NOTHING).weights == (split / "original_model.safetensors").read_bytes()


def test_returned_network_is_used(submit: Submit, split: Path) -> None:
    result = submit(
        body(
            "import copy, torch",
            "other = copy.deepcopy(net)",
            "with torch.no_grad():",
            "    [p.zero_() for p in other.parameters()]",
            "return other",
        )
    )
    assert result.weights is not None
    assert all(not value.any() for value in load(result.weights).values())


def test_tuple_style_and_keywords_are_passed(submit: Submit) -> None:
    source = """
    def unlearning(net, retain, forget, validation, class_counts, *, param_names):
        x, y = next(iter(retain))
        print(x.shape, sorted(class_counts)[:2], len(param_names))
    """
    result = submit(source, entry=EntryPoint(style="tuple", keywords=("class_counts", "param_names")))
    assert result.log == b"torch.Size([60, 1, 8, 8]) ['0', '1'] 4\n"


@pytest.mark.parametrize(
    ("source", "error_class"),
    [
        ("x = 1\n", "no-entry-point"),
        ("def unlearning(net):\n    pass\n", "wrong-signature"),
        ("def unlearning(net, retain, forget, validation)\n    pass\n", "syntax-error"),
        (body("raise ValueError('no')"), "exception"),
        (body("net.extra = __import__('torch').nn.Linear(2, 2)"), "wrong-weights"),
        (body("net.half()"), "wrong-weights"),
        (body("import torch", "return torch.nn.Linear(2, 2)"), "wrong-weights"),
        (body("next(net.parameters()).data.fill_(float('nan'))"), "non-finite-weights"),
        (body("import sys", "sys.exit(0)"), "exception"),
    ],
)
def test_failure_is_named_and_the_participants(submit: Submit, source: str, error_class: str) -> None:
    """Those of limits and of what is sent back are among the attacks."""
    result = submit(source)
    assert result.verdict.error_class == error_class, (result.verdict, result.facts, result.log)
    assert result.verdict.fault is Blame.PARTICIPANT
    assert result.verdict.message
    assert result.weights is None


def test_end_that_takes_long_keeps_its_name(submit: Submit) -> None:
    """Its files are closed some time before it is gone: on a busy machine, longer than a closed pipe is borne with."""
    source = """
    import ctypes, os, threading, time

    def end():
        time.sleep(0.3)  # the first thread, whose state is the process's, is gone by now
        os.close(3)
        time.sleep(1)
        ctypes.string_at(0)

    def unlearning(*_):
        threading.Thread(target=end).start()
        ctypes.CDLL(None).syscall(60, 0)
    """
    assert submit(source).verdict.error_class == "killed"


def test_exception_names_the_own_files_line(submit: Submit) -> None:
    verdict = submit(body("x = 1", "import torch", "torch.zeros(2).view(3)")).verdict
    assert (verdict.exception_type, verdict.file, verdict.line) == ("RuntimeError", "submission.py", 4)


def test_a_long_traceback_comes_whole(submit: Submit) -> None:
    steps = "".join(f"def step_{i}():\n    step_{i + 1}()\n" for i in range(60)) + "def step_60():\n    1 / 0\n"
    log = submit(steps + body("step_0()")).log.decode()
    assert all(f"in step_{i}\n" in log for i in range(61))


def test_a_missing_module_is_named(submit: Submit) -> None:
    message = submit(body("import no_such_module"), kind="sample").verdict.message
    assert "'no_such_module' is not installed" in message


def test_syntax_error_names_its_line(submit: Submit) -> None:
    verdict = submit("x = 1\ny = (\n").verdict
    assert (verdict.error_class, verdict.file, verdict.line) == ("syntax-error", "submission.py", 2)


@pytest.mark.parametrize(
    ("style", "line"),
    [
        ("dict", "inputs, targets = zip(*retain)"),
        ("dict", "[part.to('cpu') for batch in retain for part in batch]"),
        ("tuple", "[batch['image'] for batch in retain]"),
        ("tuple", "[batch.items() for batch in retain]"),
    ],
)
def test_batches_in_the_other_form_are_named_with_the_line_that_chooses(submit, style, line):
    source = f"def unlearning(net, retain, forget, validation):\n    {line}\n"
    message = submit(source, entry=EntryPoint(style=style), kind="sample").verdict.message
    assert f"`# lethe: samples = {'tuple' if style == 'dict' else 'dict'}`" in message
    assert "samples =" not in submit(source, entry=EntryPoint(style=style)).verdict.message


def test_weights_that_stayed_the_originals_are_warned_of_on_the_sample(submit: Submit) -> None:
    trained = GOOD.replace("    optimiser = torch", "    net = __import__('copy').deepcopy(net)\n    optimiser = torch")
    for source, is_warned in ((trained, True), (NOTHING, True), (GOOD, False), (trained + "    return net\n", False)):
        result = submit(source, kind="sample")
        assert result.weights is not None
        assert ("are the original model's, bit for bit" in "".join(warnings_in("".join(result.notes)))) == is_warned
    assert submit(trained).notes == ()


@pytest.mark.parametrize(
    ("lines", "with_init"),
    [
        ("from .util import x", True),
        ("from p.util import x", True),
        ("from .util import x", False),
        ("from util import x", True),
    ],
)
@pytest.mark.parametrize("init", ["", "from .unlearning import unlearning"])
def test_a_package_is_imported_as_one(sandbox: Sandbox, stage: Path, lines: str, with_init: bool, init: str) -> None:
    folder = stage / f"package-{abs(hash((lines, with_init, init))):x}"
    (folder / "p").mkdir(parents=True)
    (folder / "p" / "util.py").write_text("x = 1\n")
    (folder / "p" / "unlearning.py").write_text(f"{lines}\n{body('assert x == 1')}")
    if with_init:
        (folder / "p" / "__init__.py").write_text(init)
    result = sandbox.run(RunRequest(code_dir=folder, entry_point=EntryPoint(file="p/unlearning.py"), kind="sample"))
    assert result.weights is not None, result.log.decode()


def test_a_file_that_was_sent_along_is_said_to_lie_beside_the_code(sandbox: Sandbox, stage: Path) -> None:
    folder = write_submission(stage, "beside", body("open('table.csv')"))
    (folder / "data").mkdir()
    (folder / "data" / "table.csv").write_text("a")
    verdict = sandbox.run(RunRequest(code_dir=folder, kind="sample")).verdict
    assert "`pathlib.Path(__file__).parent / 'data/table.csv'`" in verdict.message
    assert "table.csv" not in sandbox.run(RunRequest(code_dir=folder)).verdict.message


def test_own_exception_name_is_shown_on_public_data_only(submit: Submit) -> None:
    source = "class Secret42(ValueError): pass\n" + body("raise Secret42('x')")
    assert submit(source).verdict.exception_type == "ValueError"
    assert submit(source, kind="sample").verdict.exception_type == "Secret42"


@pytest.fixture
def hurried(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    """The same sandbox with less time: the clocks are the launcher's own."""
    policy = replace(TEST_POLICY, idle_time_s=1, cpu_time_s=1)
    monkeypatch.setattr(sandbox, "_spec", replace(sandbox._spec, policy=policy))
    return sandbox


# 30 ms of processor time on any machine: more than idle runs have, and in three seconds less than the limit.
SOME_WORK = ("    until = time.process_time() + 0.03", "    while time.process_time() < until: pass")


def test_busy_run_ends_at_its_wall_time(hurried: Sandbox, stage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = hurried._spec
    monkeypatch.setattr(hurried, "_spec", replace(spec, policy=replace(spec.policy, wall_time_s=3)))
    source = body("import time", "while True:", "    time.sleep(0.5)", *SOME_WORK)
    result = hurried.run(RunRequest(code_dir=write_submission(stage, "time-timeout", source)))
    assert result.verdict.error_class == "timeout", result.facts
    assert result.wall_time_s < 10


def test_processor_time_of_all_processes_ends_the_run(hurried: Sandbox, stage: Path) -> None:
    source = body("import os", "for i in range(4): os.fork()", "while True: pass")
    result = hurried.run(RunRequest(code_dir=write_submission(stage, "time-limit", source)))
    assert result.verdict.error_class == "time-limit", result.facts


def test_run_that_ends_within_a_tick_is_measured_to_its_end(hurried, stage, monkeypatch):
    """Its weights came before the watch looked, and its processor time was more than it had."""
    spec = hurried._spec
    monkeypatch.setattr(hurried, "_spec", replace(spec, policy=replace(spec.policy, cpu_time_s=0.06)))
    work = ("    until = time.process_time() + 0.07", "    while time.process_time() < until: pass")
    source = body("import time", "if True:", *work)
    result = hurried.run(RunRequest(code_dir=write_submission(stage, "time-short", source)))
    assert result.verdict.error_class == "time-limit", result.facts
    assert result.weights is None


def test_data_loader_with_processes_works(submit: Submit) -> None:
    """Whatever this Python's own way of starting processes is."""
    source = body(
        "import torch",
        "loader = torch.utils.data.DataLoader(retain.dataset, batch_size=16, num_workers=2)",
        "print(sum(len(batch['image']) for batch in loader))",
    )
    assert submit(source).log == b"60\n"


def test_database_in_a_file_of_the_run_works(submit: Submit) -> None:
    """SQLite asks who holds a lock: a wrong answer breaks its journals."""
    source = body(
        "import sqlite3",
        "for mode in ('wal', 'delete'):",
        "    base = sqlite3.connect(f'/scratch/{mode}.db')",
        "    base.execute(f'pragma journal_mode={mode}')",
        "    base.execute('create table seen (x)')",
        "    base.execute('insert into seen values (1)')",
        "    base.commit()",
        "    print(sqlite3.connect(f'/scratch/{mode}.db').execute('select x from seen').fetchall())",
    )
    assert submit(source).log == b"[(1,)]\n" * 2


def test_stopping_is_nobodys_fault(sandbox: Sandbox, stage: Path) -> None:
    folder = write_submission(stage, "endless", body("while True: pass"))
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    began = time.monotonic()
    result = sandbox.run(RunRequest(code_dir=folder), should_stop=stop.is_set)
    assert (result.verdict.error_class, result.verdict.fault) == ("stopped", Blame.STOPPED)
    assert time.monotonic() - began < TEST_POLICY.wall_time_s


def test_code_outside_the_stage_folder_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="below"):
        sandbox.run(RunRequest(code_dir=tmp_path))


def test_plain_backend_is_refused_in_production(split: Path, stage: Path) -> None:
    with pytest.raises(BackendUnavailable, match="no boundary"):
        Launcher(SandboxSpec(data_dir=split, stage_dir=stage, backend="plain"))


def test_plain_backend_keeps_a_runs_temporary_files_where_this_process_has_its_own(split: Path, stage: Path) -> None:
    source = "import tempfile\n\ndef unlearning(net, retain, forget, validation):\n    print(tempfile.gettempdir())\n"
    folder = write_submission(stage, "asks", source)
    spec = SandboxSpec(data_dir=split, stage_dir=stage, policy=TEST_POLICY, backend="plain", production=False)
    with Launcher(replace(spec, required_controls=frozenset())).start() as plain:
        result = plain.run(RunRequest(code_dir=folder, kind="sample"))
    assert result.log.decode().split() == [tempfile.gettempdir()], result.verdict
