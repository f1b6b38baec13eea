"""A benchmark on a server: its workers compute it, this asks for it and looks at how far it is."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from lethe.benchmark.plan import Plan
from lethe.client.api import LetheClient, Unreachable
from lethe.errors import HostFault, InvalidInput

Json = dict[str, Any]
LOOK_EVERY_S, LOST_AFTER = 5.0, 60  # answers in a row


def put_benchmark(client: LetheClient, plan: Plan, *, max_hours: float | None = None, retry: bool = False) -> Json:
    """Send what the plan asks for. Return the server's status; `changed` says what is new to it.

    max_hours: nothing is submitted after that, 0 stops it now. retry: run again what failed.
    """
    if plan.file.tune is not None:
        raise InvalidInput(
            "[tune] searches in a folder of this machine: run it without --server, then send a file without [tune] "
            "whose methods have the chosen constants, which `lethe benchmark tuned` prints"
        )
    body = {
        "file": plan.file.model_dump(mode="json"),
        "text": plan.text,
        "cells": [{"name": cell.name, "competition": cell.competition.model_dump(mode="json")} for cell in plan.cells],
        "methods": [
            {
                "name": method.label,
                "source": method.files["unlearning.py"],
                "id": method.method_id,
                "constants": dict(method.constants),
            }
            for method in plan.methods
        ],
        "max_hours": max_hours,
        "retry_failed": retry,
    }
    answer: Json = client.put(f"/benchmarks/{plan.file.slug}", body)
    return answer


def get_status(client: LetheClient, slug: str) -> Json:
    """Return how far a benchmark is."""
    answer: Json = client.get(f"/benchmarks/{slug}")
    return answer


def get_results(client: LetheClient, slug: str) -> Json:
    """Return a benchmark's results, as `lethe.benchmark.results.collect` makes them from a folder."""
    answer: Json = client.get(f"/benchmarks/{slug}/results")
    return answer


def wait(client: LetheClient, slug: str, say: Callable[[str], None], *, every_s: float = LOOK_EVERY_S) -> Json:
    """Return the status once nothing is left, or nothing more is submitted. Lives through restarts of the server."""
    said, lost = "", 0
    while True:
        try:
            status = get_status(client, slug)
            lost = 0
        except Unreachable as error:
            lost += 1
            if lost >= LOST_AFTER:
                raise HostFault(f"{error.detail} The benchmark goes on; `lethe benchmark status` shows it") from error
            time.sleep(every_s)
            continue
        if (text := status_text(status)) != said:
            said = text
            say(text)
        until = status["submits_until"]
        is_stopped = until is not None and datetime.fromisoformat(until) <= datetime.now(UTC)
        if status["left"] == 0 or status["complete_at"] or is_stopped:
            return status
        time.sleep(every_s)


def status_text(status: Json) -> str:
    """Return one line: what is done, failed, left, and the estimate."""
    done, failed = (sum(cell[name] for cell in status["progress"]) for name in ("n_done", "n_failed"))
    preparing = sum(cell["split"] in ("pending", "preparing") for cell in status["progress"])
    left = left_text(status["left"], status["left_s"])
    return f"{done} done, {failed} failed, {preparing} cells in preparation, left: {left}"


def left_text(left: int, left_s: float | None, *, of: str = "worker") -> str:
    """Return how much is left, and about how long one worker, or process, takes for it."""
    if left == 0:
        return "nothing"
    text = f"{left} of method x cell"
    return text if left_s is None else f"{text}, about {left_s / 60:.0f} minutes of one {of}"
