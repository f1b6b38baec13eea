"""Names that may stand for one object: changing it under one name changes it under all."""

from collections.abc import Iterable, Sequence


class NameGroups:
    """Groups of names, joined wherever two of them may be one object."""

    def __init__(self, groups: Iterable[Sequence[str]]) -> None:
        self._parent: dict[str, str] = {}
        for first, *others in (group for group in groups if group):
            for other in others:
                self._parent[self.of(other)] = self.of(first)

    def of(self, name: str) -> str:
        """Return one name that stands for the whole group."""
        top = name
        while (above := self._parent.get(top, top)) != top:
            top = above
        while (above := self._parent.get(name, name)) != top:
            self._parent[name], name = top, above
        return top
