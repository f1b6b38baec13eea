"""What code of 2023 expects of torch and newer versions lack: loading whole models, `verbose` of schedulers.

There is no compiler where a submission runs, so torch.compile returns what it is given.
"""

import functools
import inspect
import os
from typing import Any

from torch.optim import lr_scheduler

# Read by torch at each call.
ENVIRONMENT = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "TORCHDYNAMO_DISABLE": "1"}


def install() -> None:
    """Let this process, and those that it starts, run such code. A second call changes nothing."""
    os.environ.update(ENVIRONMENT)
    for kind in vars(lr_scheduler).values():
        if inspect.isclass(kind) and issubclass(kind, lr_scheduler.LRScheduler) and "__init__" in vars(kind):
            _accept_verbose(kind)


def _accept_verbose(kind: type[lr_scheduler.LRScheduler]) -> None:
    make: Any = kind.__init__
    if hasattr(make, "accepts_verbose"):
        return
    # Schedulers of the participant's own hand (optimizer, last_epoch, verbose) to the base.
    most = 2 if kind is lr_scheduler.LRScheduler else None

    @functools.wraps(make)
    def making(self: Any, *arguments: Any, verbose: object = None, **options: Any) -> None:  # noqa: ARG001 - dropped
        make(self, *arguments[:most], **options)

    making.accepts_verbose = True  # type: ignore[attr-defined]
    kind.__init__ = making  # type: ignore[method-assign]
