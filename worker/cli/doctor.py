"""`lethe doctor`: whether this host can serve an instance and confine code, and how to fix what is wrong."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from sandbox import doctor as sandbox_doctor
from sandbox.environments import find_environment, known_sets, missing_set
from sandbox.policy import RunPolicy
from server import doctor
from server.config import Settings
from server.doctor import Finding
from worker.host.worker_info import required_controls

MARKS = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "wrong": "[bold red]wrong[/]"}


def examine_host(*, as_json: bool) -> None:
    """Print the findings, as a table or as JSON lines. Exit status 1: something is wrong."""
    findings = list(_all())
    if as_json:
        for finding in findings:
            typer.echo(json.dumps(asdict(finding)))
    else:
        Console().print(_table(findings))
    if any(finding.state == "wrong" for finding in findings):
        raise typer.Exit(1)


def _all() -> Iterator[Finding]:
    settings, finding = doctor.read_settings()
    yield finding
    if settings is None:
        return
    yield from doctor.examine(settings)
    yield _namespaces()
    yield _core_dumps(settings)
    yield _sandbox(settings)
    yield from _libraries(settings)
    yield _gpu(settings)


def _namespaces() -> Finding:
    path = Path("/proc/sys/user/max_user_namespaces")
    allowed = int(path.read_text()) if path.exists() else 0
    if allowed:
        return Finding("user namespaces", "ok", f"{allowed:,} allowed")
    return Finding(
        "user namespaces", "wrong", "none allowed", "Set the sysctl user.max_user_namespaces to 10000 or more."
    )


def _core_dumps(settings: Settings) -> Finding:
    if settings.sandbox_backend != "bubblewrap":
        return Finding("core dumps", "ok", "a run's stay within it")
    try:
        fix = sandbox_doctor.core_dump_problem()
    except OSError:
        look = "Look on the host itself that the sysctl kernel.core_pattern is a file's name, not @ or | and more."
        return Finding("core dumps", "warning", "kernel.core_pattern cannot be read", look)
    if fix:
        return Finding("core dumps", "warning", "a run's could leave it", fix)
    return Finding("core dumps", "ok", "a run's stay within it where the worker's limit on them is this shell's")


def _sandbox(settings: Settings) -> Finding:
    backend = settings.sandbox_backend
    examined = sandbox_doctor.examine(backend=backend, required=required_controls(settings))
    if examined.problems:
        lacks = f"{backend} does not give what LETHE_SANDBOX_REQUIRED={settings.sandbox_required} asks for"
        return Finding("sandbox", "wrong", lacks, " ".join(examined.problems))
    seen = f"{backend}, started in {examined.start_time_s:.1f} s, a run in {examined.run_time_s:.2f} s"
    if examined.weaknesses:
        return Finding("sandbox", "warning", f"{seen}; weaker than `strict` asks for", " ".join(examined.weaknesses))
    return Finding("sandbox", "ok", seen)


def _libraries(settings: Settings) -> Iterator[Finding]:
    """Try each set of older libraries that lies here in a sandbox of its own."""
    folder, backend = settings.library_sets, settings.sandbox_backend
    for name in known_sets():
        what = f"libraries {name}"
        if not (folder / name).exists():
            yield Finding(what, "ok", f"not installed; for competitions that name them: lethe libraries install {name}")
            continue
        if problem := missing_set(name, folder):
            yield Finding(what, "wrong", "cannot be used", problem)
            continue
        examined = sandbox_doctor.examine(
            backend=backend, policy=RunPolicy(libraries=name), required=required_controls(settings), library_sets=folder
        )
        words = f"{find_environment(name, folder).in_words}; started in {examined.start_time_s:.1f} s"
        yield Finding(what, "wrong" if examined.problems else "ok", words, " ".join(examined.problems))


def _gpu(settings: Settings) -> Finding:
    program = shutil.which("nvidia-smi")
    listed = _ask(program) if program else ""
    if settings.worker_device == "cpu":
        return Finding("gpu", "ok", f"not used; {listed or 'none found'}")
    if not listed:
        fix = "Install NVIDIA's driver, or give the container its devices; else set LETHE_WORKER_DEVICE=cpu."
        return Finding("gpu", "wrong", "LETHE_WORKER_DEVICE is cuda and no GPU answers", fix)
    wanted, present = settings.worker_gpus.split(","), len(listed.split("; "))
    beyond = [number for number in wanted if int(number) >= present]
    if beyond:
        return Finding("gpu", "wrong", listed, f"LETHE_WORKER_GPUS names {', '.join(beyond)} of {present} GPUs.")
    return Finding("gpu", "ok", listed)


def _ask(program: str) -> str:
    """Return the GPUs and their driver, empty if the driver does not answer."""
    query = [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return "; ".join(line.strip() for line in answer.stdout.splitlines() if line.strip())


def _table(findings: list[Finding]) -> Table:
    table = Table("", "", "found", "what to do", box=None, padding=(0, 1))
    for finding in findings:
        table.add_row(finding.name, MARKS[finding.state], finding.found, finding.fix)
    return table
