"""Run a command as an ordinary user who can reach interpreter and checkout: root only, nothing of the host changed.

    python -m tests.sandbox.as_other_user pytest tests/sandbox/...

In its own mount namespace, a private folder that hides them (a home of mode 0700) is covered by one that shows just
them; then every privilege is dropped and the command runs.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from sandbox.guest import linux

UID = 60_790  # below the slots, assigned to nobody


def main() -> None:
    """Show the interpreter, drop to the other user and become the command."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    _show(Path(sys.base_prefix), Path(sys.prefix), Path.cwd())
    home = tempfile.mkdtemp(prefix="lethe-other-user-")
    os.chown(home, UID, UID)
    sys.stdout.flush()
    child = os.fork()  # the parent stays root, to remove the other user's home
    if child:
        _, status = os.waitpid(child, 0)
        shutil.rmtree(home, ignore_errors=True)
        sys.exit(os.waitstatus_to_exitcode(status))
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    environment = {"HOME": home, "TMPDIR": home, "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    os.execve(sys.executable, [sys.executable, "-m", *sys.argv[1:]], environment)


def _show(*folders: Path) -> None:
    here = Path.cwd()
    hidden = {folder: private[-1] for folder in folders if (private := _private_parents(folder))}
    opened = {folder: os.open(folder, os.O_PATH) for folder in hidden}
    for cover in set(hidden.values()):
        linux.mount("none", str(cover), kind="tmpfs", options="mode=0755,size=1m")
    for folder in sorted(hidden):  # what holds another one first
        if not folder.exists():
            folder.mkdir(parents=True)
            linux.mount(f"/proc/self/fd/{opened[folder]}", str(folder), flags=linux.MS_BIND)
        os.close(opened[folder])
    os.chdir(here)  # the shown folder in place of the covered one


def _private_parents(folder: Path) -> list[Path]:
    return [parent for parent in folder.parents if not parent.stat().st_mode & 0o001]


if __name__ == "__main__":
    main()
