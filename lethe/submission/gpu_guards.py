"""Statements of a file's top level that do nothing but give up where there is no GPU: they are not run here."""

from lethe.submission.blanked_lines import without_statements
from lethe.submission.left_out import LeftOut
from lethe.submission.notebook_statements import split_statements
from lethe.submission.own_loop import GPU, Reason, is_gpu_guard


def without_gpu_guards(data: bytes) -> tuple[bytes, tuple[LeftOut, ...]]:
    """Return a file that is Python without its guards, and a list of them. Its lines keep their numbers."""
    try:
        text = data.decode()
        statements = split_statements([text]) if GPU.search(text) else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # also in another encoding: left as it is
        return data, ()
    guards = [found for found in statements if is_gpu_guard(found.node)]
    if not guards:
        return data, ()
    kept = [found for found in statements if not is_gpu_guard(found.node)]
    left_out = tuple(LeftOut(0, *found.lines, Reason.GUARDS.value) for found in guards)
    return without_statements([text], guards, kept)[0].encode(), left_out
