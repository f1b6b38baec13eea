"""What the reading of one stranger's text may take. An honest upload takes some hundredths of it."""

from dataclasses import dataclass

CPU_S = 3
WALL_S = 20.0
MEMORY_BYTES = 512 << 20  # address space, and twice the text
NICENESS = 10  # of what takes longer than an honest text: the web server's answers come first
NICE_AFTER_S = 0.2
AT_ONCE = 2  # uploads of each web process, and as many texts for its pages
CHILDREN = 2 * AT_ONCE + 2  # the last are for a dataset, and one that a page looks at
TEXTS_OF_A_CHILD = 20
FRESH_AFTER_S = 0.1  # of computing: a child that had more to do with a text reads no other
MAX_WAITING = 64
MAX_OF_ONE_ACCOUNT = 8  # waiting or being read
STARTED = b"+"  # begins a child's first line, with its number: from here on, its end is the text's fault


@dataclass(frozen=True)
class TaskLimits:
    """What one task may take. file_bytes: the longest file that it writes. answer_bytes: what a text may become."""

    cpu_s: int = CPU_S
    wall_s: float = WALL_S
    file_bytes: int = 0
    answer_bytes: int = 16 << 20


_OF_DATASETS = TaskLimits(cpu_s=180, wall_s=900.0)  # gigabytes are unpacked
_OF_TASK = {
    "render_markdown": TaskLimits(answer_bytes=2 << 20),  # a link that is named once and meant often grows without end
    "check_dataset": _OF_DATASETS,
    "propose_competition": TaskLimits(cpu_s=20, wall_s=60.0),  # names, a table and some pictures are read
    "unpack_dataset": TaskLimits(_OF_DATASETS.cpu_s, _OF_DATASETS.wall_s, file_bytes=16 << 30),
}


def get_limits(task: str) -> TaskLimits:
    """Return what a task of server.parsing.tasks may take."""
    return _OF_TASK.get(task, TaskLimits())
