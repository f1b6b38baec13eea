"""The limit of open files: each connection, stream, log and database file takes one."""

import resource

ENOUGH = 65_536  # some programs go through every number up to the limit when they start


def raise_limit() -> None:
    """Let this process and what it starts open as many files as the system allows it, up to what is enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
