"""Files that are not the run's: the host's, other runs', and rights by a file's own."""

import glob
import importlib
import os
import shutil
import stat
import subprocess
import sys

CHANGED = """
    /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/memory/cgroup.procs /sys/fs/cgroup/pids/pids.max
    /data/retain.safetensors /data/original_model.safetensors /data/network.json
    /opt/python/bin/python3 /opt/python/lib/python3.11/os.py /opt/site/torch/__init__.py
    /opt/lethe/sandbox/guest/harness.py /submission/submission.py
    /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/vm/overcommit_memory /proc/sysrq-trigger
    /proc/self/../sys/kernel/hostname
"""
READ = """
    /data/../hidden/test.safetensors /data/../hidden/secret /hidden/secret /data/hidden/secret
    /etc/passwd /etc/shadow /root/.ssh/id_rsa /etc/ssl/private /etc/machine-id
    /dev/mem /dev/kmem /dev/port /dev/vda /dev/sda /dev/nvme0n1 /dev/kmsg /dev/tty /dev/console /dev/ptmx
    /dev/kvm /dev/fuse /dev/net/tun
    /sys/class/dmi/id/product_uuid /sys/kernel/notes /boot/vmlinuz /run/systemd/private /var/run/docker.sock
    /sys/fs/cgroup/cgroup.procs
    /proc/kcore /proc/kallsyms /proc/kmsg /proc/iomem /proc/keys /proc/sys/kernel/random/boot_id /proc/timer_list
    /proc/config.gz
"""


def can(attempt, *arguments):
    try:
        attempt(*arguments)
    except OSError:
        return False
    return True


def files_change(*_):
    """Tries to open groups, data, interpreter, code and kernel settings for writing. Must end in: weights"""
    opened = [path for path in CHANGED.split() if can(os.open, path, os.O_WRONLY)]  # never written to
    assert not opened, opened


def files_read(*_):
    """Tries to read hidden data, accounts, keys, devices and the machine's description. Must end in: weights"""
    opened = [path for path in READ.split() if can(lambda path=path: os.read(os.open(path, os.O_RDONLY), 16))]
    assert not opened, opened


def files_canary(*_):
    """Tries to read a world-readable file of the host. Must end in: weights"""
    for root in ["", "/var", "/proc/1/root", "/proc/self/root/.."]:
        assert not glob.glob(root + "/tmp/lethe-canary-*/secret"), root


def files_create_anywhere(*_):
    """Tries to create files outside the scratch space. Must end in: weights"""
    for folder in ("/", "/data", "/submission", "/opt", "/opt/site", "/dev", "/proc", "/usr/lib", "/stage", "/lib"):
        assert not can(os.open, folder + "/lethe-breach", os.O_WRONLY | os.O_CREAT, 0o600), folder


def files_hard_link_out(*_):
    """Tries to keep a read-only file writable through a hard link. Must end in: weights"""
    assert not can(os.link, "/data/network.json", "/scratch/mine")


def files_other_submissions(*_):
    """Tries to list and read other teams' submissions. Must end in: weights"""
    assert not can(os.listdir, "/stage") or not os.listdir("/stage")
    assert len(os.listdir("/submission")) == 1


def files_scorer(*_):
    """Tries to import the scorer, the server and the trusted side of the sandbox. Must end in: weights"""
    for name in ("worker", "lethe.metrics.scoring", "server", "server.config", "sandbox.launcher", "sandbox.verdict"):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        raise AssertionError(name)


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
    wrong += [name for name, by in (("user", user), ("group", group)) if int(by)]
    return wrong + ["new privileges"] * (values["NoNewPrivs"].strip() != "1")


def files_setuid(*_):
    """Tries to gain rights by those of a file, from every place that it can write. Must end in: weights"""
    own = os.path.realpath(sys.executable)
    found, tried = gained(own), 0
    places = [place for place in ("/scratch", "/tmp", "/dev/shm") if os.access(place, os.W_OK)]
    assert "/scratch" in places
    for place in places:
        program = f"{place}/python"
        if not can(shutil.copy, own, program):  # larger than the place
            continue
        tried += 1
        os.chmod(program, 0o6755)
        if not os.statvfs(program).f_flag & os.ST_NOSUID:
            found.append(f"{place} heeds set-uid")
        found += gained(program)
        if can(os.setxattr, program, "security.capability", CAPABILITIES):
            found += [f"{place} takes capabilities", *gained(program)]
        os.unlink(program)
    for folder in FOLDERS:
        for entry in os.scandir(folder) if os.path.isdir(folder) else ():
            mode = entry.stat(follow_symlinks=False).st_mode
            if mode & (stat.S_ISUID | stat.S_ISGID) and not os.statvfs(entry.path).f_flag & os.ST_NOSUID:
                found.append(entry.path)
    assert tried, "no place has room for a program"
    assert not found, found


def files_symlink_out(*_):
    """Tries to leave through a symbolic link in the scratch space. Must end in: weights"""
    for target in ("/proc/1/root/etc", "../../../../etc", "/data/../../etc"):
        os.symlink(target, "/scratch/link")
        assert not can(os.listdir, "/scratch/link"), target
        os.unlink("/scratch/link")


def files_touch_devices(*_):
    """Tries to write a message into the times of the host's device nodes. Must end in: weights"""
    nodes = [entry.path for entry in os.scandir("/dev") if not entry.is_dir() and not entry.is_symlink()]
    assert "/dev/null" in nodes
    touched = [node for node in nodes if can(os.utime, node)]
    assert not touched, touched
    with open("/dev/null", "wb") as sink:  # what it is for still works
        sink.write(b"x")
