# Tries to gain rights by those of a file, from every place that it can write. Must end in: weights
import os
import shutil
import stat
import subprocess
import sys

CAPABILITIES = (0x03000001).to_bytes(4, "little") + b"\xff\xff\xff\xff" * 4 + (0).to_bytes(4, "little")
FOLDERS = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/lib/openssh", "/usr/lib/dbus-1.0", "/opt/python/bin")
SHOW = "import os; print(os.geteuid() - os.getuid(), os.getegid() - os.getgid(), open('/proc/self/status').read())"


def gained(program):
    """What a program of ours is given that its file claims; where it may not even be started, that is nothing."""
    environment = {**os.environ, "PYTHONHOME": sys.base_prefix}
    try:
        done = subprocess.run([program, "-S", "-c", SHOW], capture_output=True, text=True, env=environment, check=False)
    except OSError:
        return []
    if done.returncode:
        raise RuntimeError(f"{program} did not run: {done.stderr[-200:]}")
    user, group, status = done.stdout.split(maxsplit=2)
    values = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    wrong = [name for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(values[name], 16)]
    return (
        wrong
        + [name for name, by in (("user", user), ("group", group)) if int(by)]
        + ["new privileges" for _ in range(values["NoNewPrivs"].strip() != "1")]
    )


def unlearning(net, retain, forget, validation):
    own = os.path.realpath(sys.executable)
    found, tried = gained(own), 0
    places = [place for place in ("/scratch", "/tmp", "/dev/shm") if os.access(place, os.W_OK)]
    assert "/scratch" in places
    for place in places:
        program = f"{place}/python"
        try:
            shutil.copy(own, program)
        except OSError:  # larger than the place
            continue
        tried += 1
        os.chmod(program, 0o6755)
        if not os.statvfs(program).f_flag & os.ST_NOSUID:
            found.append(f"{place} heeds set-uid")
        found += gained(program)
        try:
            os.setxattr(program, "security.capability", CAPABILITIES)
            found += [f"{place} takes capabilities", *gained(program)]
        except OSError:
            pass
        os.unlink(program)
    for folder in FOLDERS:
        for entry in os.scandir(folder) if os.path.isdir(folder) else ():
            mode = entry.stat(follow_symlinks=False).st_mode
            if mode & (stat.S_ISUID | stat.S_ISGID) and not os.statvfs(entry.path).f_flag & os.ST_NOSUID:
                found.append(entry.path)
    if not tried:
        raise RuntimeError("no place has room for a program")
    if found:
        raise AssertionError(f"breach: {found}")
