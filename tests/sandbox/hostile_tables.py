"""Attacks of one call or file each, as tables: whatever the kernel would do with it, the sandbox has to refuse it."""

from pathlib import Path

# A call by its number on x86-64, with arguments that the kernel itself would refuse with another error.
CALL = """# Tries to {attempt}. Must end in: weights
import ctypes
import platform

LIBC = ctypes.CDLL(None, use_errno=True)


def refused(number, *arguments):
    '''Whether the kernel turned the call away (EPERM, EACCES or ENOSYS) rather than looked at its arguments.'''
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return LIBC.syscall(ctypes.c_long(number), *wide) == -1 and ctypes.get_errno() in (1, 13, 38)


def unlearning(net, retain, forget, validation):
    if platform.machine() == "x86_64" and not {call}:
        raise AssertionError("breach")
"""
CALLS = {
    "calls_add_key": ("leave a key for the next run", 'refused(248, b"lethe-no-such-type", b"lethe", b"x", 1, -4)'),
    "calls_affinity": (
        "run on processors that are not its own",
        'refused(203, 0, 8, b"\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff")',
    ),
    "calls_aio": ("use up the machine-wide quota of asynchronous requests", "refused(206, 1, 0)"),
    "calls_bpf": ("load a program into the kernel", "refused(321, 0, 0, 0)"),
    "calls_chroot": ("change the root of this process", 'refused(161, b"/")'),
    "calls_clock": ("set the machine's clock", "refused(227, 0, 0)"),
    "calls_fanotify": ("watch the host's files", "refused(300, 0, 0)"),
    "calls_hostname": ("rename the machine", "refused(170, 0, -1)"),
    "calls_io_uring": ("make system calls past the filter through io_uring", "refused(425, 1, 0)"),
    "calls_kernel_log": ("read the kernel's log", "refused(103, 3, 0, 0)"),
    "calls_keyctl": ("use the kernel's key rings, which namespaces do not part", "refused(250, 0, -4, 0, 0, 0)"),
    "calls_memfd": ("keep bytes in a file without a limit", 'refused(319, b"lethe", 0)'),
    "calls_memfd_secret": ("hide memory from the host", "refused(447, 0)"),
    "calls_mknod": ("make a device node", 'refused(133, b"/scratch/mem", 0o20600, 0x101)'),
    "calls_modify_ldt": ("change the processor's tables", "refused(154, 0, 0, 0)"),
    "calls_module": ("load a kernel module", "refused(175, 0, 0, 0)"),
    "calls_mount": ("mount a file system", "refused(165, 0, 0, 0, 0, 0)"),
    "calls_move_mount": ("move a mount", 'refused(429, -1, b"", -1, b"", 0)'),
    "calls_new_mount_api": ("mount through the newer calls", 'refused(428, -100, b"/", 1)'),
    "calls_open_by_handle": ("open a file by its number, past every path", "refused(304, -1, 0, 0)"),
    "calls_perf": ("watch the machine through performance counters", "refused(298, 0, 0, -1, -1, 0)"),
    "calls_personality": ("turn off address randomisation", "refused(135, 0x0040000)"),
    "calls_pidfd_getfd": ("take a descriptor out of another process", "refused(438, -1, 0, 0)"),
    "calls_pivot_root": ("change the root", 'refused(155, b"/", b"/")'),
    "calls_posix_queue": ("leave a message queue behind", 'refused(240, b"lethe", 0o102, 0o600, 0)'),
    "calls_process_vm": ("read another process's memory", "refused(310, 2, 0, 0, 0, 0, 0)"),
    "calls_ptrace": ("trace another process", "refused(101, 16, 2, 0, 0)"),
    "calls_realtime": ("take a processor for itself", 'refused(144, 0, 1, b"\\x63\\0\\0\\0")'),
    "calls_setns": ("enter another namespace", "refused(308, -1, 0)"),
    "calls_splice": ("move pages between files inside the kernel", "refused(275, -1, 0, -1, 0, 0, 0)"),
    "calls_swap": ("use a file as swap", "refused(167, 0, 0)"),
    "calls_sync": ("flood the host's disks with syncs", "refused(162)"),
    "calls_sysv_memory": ("leave shared memory behind", "refused(29, 0, 4096, 0o1600)"),
    "calls_umount": ("uncover what lies below a mount", 'refused(166, b"/stage", 2)'),
    "calls_unshare": ("make namespaces of its own", "refused(272, 0x10000000)"),
    "calls_userfaultfd": ("hold the kernel at a page fault", "refused(323, 0)"),
}
# A socket, and what is done with it.
SOCKET = """# Tries to {attempt}. Must end in: weights
import socket


def unlearning(net, retain, forget, validation):
    try:
        with socket.socket({kind}) as attempt:
            attempt.settimeout(1)
            {use}
    except OSError:
        return
    raise AssertionError("breach")
"""
SOCKETS = {
    "network_abstract_socket": (
        "reach a host service through an abstract unix socket",
        "socket.AF_UNIX, socket.SOCK_STREAM",
        'attempt.connect("\\0lethe-canary")',
    ),
    "network_kernel_crypto": ("open the kernel's crypto sockets", "socket.AF_ALG, socket.SOCK_SEQPACKET", "pass"),
    "network_loopback": (
        "reach a service on the host's loopback",
        "socket.AF_INET, socket.SOCK_STREAM",
        'attempt.connect(("127.0.0.1", 47113))',
    ),
    "network_netlink": ("configure the network through netlink", "socket.AF_NETLINK, socket.SOCK_RAW", "pass"),
    "network_packet": ("open a packet socket", "socket.AF_PACKET, socket.SOCK_RAW", "pass"),
    "network_raw": ("open a raw socket", "socket.AF_INET, socket.SOCK_RAW", "pass"),
    "network_tcp": (
        "open a TCP connection to the internet",
        "socket.AF_INET, socket.SOCK_STREAM",
        'attempt.connect(("1.1.1.1", 443))',
    ),
    "network_tcp6": (
        "open a TCP socket over IPv6",
        "socket.AF_INET6, socket.SOCK_STREAM",
        'attempt.connect(("::1", 47113))',
    ),
    "network_udp": (
        "send a datagram to a name server",
        "socket.AF_INET, socket.SOCK_DGRAM",
        'attempt.sendto(b"lethe", ("8.8.8.8", 53))',
    ),
    "network_vsock": ("reach the hypervisor's host through VSOCK", "socket.AF_VSOCK, socket.SOCK_STREAM", "pass"),
}
# Files that are opened, and what is done with them.
OPENED = """# Tries to {attempt}. Must end in: weights
import os


def unlearning(net, retain, forget, validation):
    for path in {paths}:
        try:
            descriptor = os.open(path, os.{flag})
            {use}
        except OSError:
            continue
        raise AssertionError("breach: " + path)
"""
READ, CHANGED = ("O_RDONLY", "os.read(descriptor, 16)"), ("O_WRONLY", "os.close(descriptor)")  # never written to
FILES = {
    "files_change_cgroup": (
        "open control groups for writing",
        CHANGED,
        "/sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/memory/cgroup.procs /sys/fs/cgroup/pids/pids.max",
    ),
    "files_change_data": (
        "open the split's data for writing",
        CHANGED,
        "/data/retain.safetensors /data/original_model.safetensors /data/network.json",
    ),
    "files_change_interpreter": (
        "open the interpreter and torch for writing",
        CHANGED,
        "/opt/python/bin/python3 /opt/python/lib/python3.11/os.py /opt/site/torch/__init__.py "
        "/opt/lethe/sandbox/guest/harness.py",
    ),
    "files_change_own_code": ("open the submission's own files for writing", CHANGED, "/submission/submission.py"),
    "files_change_sysctl": (
        "open the kernel's settings for writing",
        CHANGED,
        "/proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/vm/overcommit_memory /proc/sysrq-trigger "
        "/proc/self/../sys/kernel/hostname",
    ),
    "files_hidden_data": (
        "read the hidden half of the split beside the visible one",
        READ,
        "/data/../hidden/test.safetensors /data/../hidden/secret /hidden/secret /data/hidden/secret",
    ),
    "files_passwords": (
        "read the host's accounts and keys",
        READ,
        "/etc/passwd /etc/shadow /root/.ssh/id_rsa /etc/ssl/private /etc/machine-id",
    ),
    "files_raw_devices": (
        "open disks, memory and the kernel's log",
        READ,
        "/dev/mem /dev/kmem /dev/port /dev/vda /dev/sda /dev/nvme0n1 /dev/kmsg /dev/tty /dev/console /dev/ptmx "
        "/dev/kvm /dev/fuse /dev/net/tun",
    ),
    "files_system": (
        "read the machine's own description",
        READ,
        "/sys/class/dmi/id/product_uuid /sys/kernel/notes /boot/vmlinuz /run/systemd/private /var/run/docker.sock "
        "/sys/fs/cgroup/cgroup.procs",
    ),
    "proc_kernel": (
        "read the kernel's memory and symbols",
        READ,
        "/proc/kcore /proc/kallsyms /proc/kmsg /proc/iomem /proc/keys /proc/sys/kernel/random/boot_id /proc/timer_list "
        "/proc/config.gz",
    ),
}


def write_attacks(folder: Path) -> None:
    """Write the tables' attacks, a file each, as someone would submit them."""
    for name, (attempt, call) in CALLS.items():
        (folder / f"{name}.py").write_text(CALL.format(attempt=attempt, call=call), encoding="utf-8")
    for name, (attempt, kind, use) in SOCKETS.items():
        (folder / f"{name}.py").write_text(SOCKET.format(attempt=attempt, kind=kind, use=use), encoding="utf-8")
    for name, (attempt, (flag, use), paths) in FILES.items():
        text = OPENED.format(attempt=attempt, paths=paths.split(), flag=flag, use=use)
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
