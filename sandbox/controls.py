"""Which protections a host really gives, which are required, and how to get the ones that are missing.

Controls are recorded with every result: a score says under what protection it was made. A required
control that is missing stops the start; an organiser may lower the requirement, knowingly and on record.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from sandbox.errors import BackendUnavailable


class Control(StrEnum):
    """A protection by what it stops."""

    BOUNDARY = "boundary"  # an empty root, own namespaces: no host file, process or socket has a name
    NO_NETWORK = "no-network"
    SYSTEM_CALLS = "system-calls"  # only what an allow-list names reaches the kernel
    NOT_ROOT = "not-root"  # the kernel knows the run as an ordinary user
    RUN_ISOLATION = "run-isolation"  # no run can leave anything to the next
    SCRATCH = "scratch"  # bytes and files it may write are bounded, and in memory
    MEMORY_GROUP = "memory-group"  # one memory limit over all of a run's processes
    PROCESS_GROUP = "process-group"  # one count over all of a run's processes


BASELINE_CONTROLS = frozenset(
    {Control.BOUNDARY, Control.NO_NETWORK, Control.SYSTEM_CALLS, Control.NOT_ROOT, Control.SCRATCH}
)
# What a competition with hidden data and strangers should ask for.
STRICT_CONTROLS = BASELINE_CONTROLS | {Control.RUN_ISOLATION, Control.MEMORY_GROUP, Control.PROCESS_GROUP}
# What an operator may ask for by name.
REQUIRED = {"baseline": BASELINE_CONTROLS, "strict": STRICT_CONTROLS}

_GROUPS = (
    "run the worker as root (the sandbox drops root itself), under systemd with Delegate=yes and "
    "DelegateSubgroup=worker, or in a container with its own writable /sys/fs/cgroup"
)
_HOW_TO_GET = {
    Control.BOUNDARY: "choose the back-end 'bubblewrap'",
    Control.NO_NETWORK: "choose the back-end 'bubblewrap'",
    Control.SYSTEM_CALLS: "choose the back-end 'bubblewrap', on x86_64 or aarch64",
    Control.NOT_ROOT: "start the worker as an ordinary user, or as root with a free user slot",
    Control.RUN_ISOLATION: "set isolation = 'run' in the policy; 'shard' is weaker, for accelerators",
    Control.SCRATCH: "choose the back-end 'bubblewrap'",
    Control.MEMORY_GROUP: f"memory is held by per-process limits and a watch only; {_GROUPS}",
    Control.PROCESS_GROUP: f"processes are held by RLIMIT_NPROC only; {_GROUPS}",
}


class MissingControls(BackendUnavailable):
    """A required protection is not there; each sentence says which and how to get it."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__(" ".join(sentences))
        self.sentences = sentences


@dataclass(frozen=True)
class Controls:
    """What one started sandbox has. `to_dict` goes into a score's receipt."""

    backend: str
    isolation: str
    memory: str  # "cgroup-v1", "cgroup-v2", "rlimit-and-watch"
    processes: str  # "cgroup-v1", "cgroup-v2", "rlimit"
    kernel_uid: int
    achieved: frozenset[Control]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "achieved": sorted(control.value for control in self.achieved)}


def missing_controls(controls: Controls, required: Iterable[Control]) -> list[str]:
    """Return one sentence for each required control that is not there."""
    return [
        f"The control '{control}' is required and missing: {_HOW_TO_GET[control]}."
        for control in sorted(set(required) - controls.achieved)
    ]
