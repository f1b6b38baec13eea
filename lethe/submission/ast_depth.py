"""How deeply code may be nested. What reads it goes down level by level, and must never be the one to give up.

The limit is far below what the parser takes and what any of the readers can, however deep the stack is that they are
called from: so what is taken at upload can be read by a worker as well.
"""

import ast

MAX_LEVELS = 200  # ordinary code has 20; a sum of 150 terms has 150


def is_too_deep(tree: ast.AST) -> bool:
    """Return whether a syntax tree has more than MAX_LEVELS levels. Never recurses."""
    level = [tree]
    for _ in range(MAX_LEVELS):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return False
    return True
