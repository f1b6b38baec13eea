"""Which protections a back-end gives on this host: known before any sandbox is started."""

import os

from sandbox.backends.bubblewrap import Bubblewrap
from sandbox.backends.plain import Plain
from sandbox.cgroups import GroupRoots, find_roots
from sandbox.controls import Control, Controls
from sandbox.policy import Isolation
from sandbox.uid_slots import FIRST_SLOT_UID

Backend = Bubblewrap | Plain
BACKENDS: dict[str, type[Backend]] = {"bubblewrap": Bubblewrap, "plain": Plain}


def host_controls(backend: str, *, isolation: Isolation = Isolation.RUN) -> Controls:
    """Return what a sandbox that is started here and now would have, without starting one."""
    return controls_for(
        BACKENDS[backend](),
        roots=find_roots() if backend != "plain" else GroupRoots(),
        slot_uid=expected_slot_uid(backend),
        isolation=isolation,
    )


def expected_slot_uid(backend: str) -> int | None:
    """Return a user that root would drop to, None where nobody drops."""
    return FIRST_SLOT_UID if backend == "bubblewrap" and os.geteuid() == 0 else None


def controls_for(backend: Backend, *, roots: GroupRoots, slot_uid: int | None, isolation: Isolation) -> Controls:
    """Return what stands with these control groups. slot_uid: whom root drops to, None where nobody drops."""
    group = f"cgroup-v{roots.version}"
    in_group = roots.controllers
    uid = os.geteuid() if slot_uid is None else slot_uid
    achieved = set(backend.controls)
    conditional = {
        Control.NOT_ROOT: uid != 0,
        Control.RUN_ISOLATION: isolation is Isolation.RUN and bool(achieved),
        Control.MEMORY_GROUP: "memory" in in_group,
        Control.PROCESS_GROUP: "pids" in in_group,
    }
    return Controls(
        backend=backend.name,
        isolation=isolation.value,
        memory=group if "memory" in in_group else "rlimit-and-watch",
        processes=group if "pids" in in_group else "rlimit",
        kernel_uid=uid,
        achieved=frozenset(achieved | {control for control, given in conditional.items() if given}),
    )
