"""[pages] of the competition file: Markdown pages beside the description."""

from typing import Annotated

from pydantic import Field

from lethe.competition.section import Section

Markdown = Annotated[str, Field(max_length=100_000)]


class Pages(Section):
    """Pages in Markdown, each shown under its own address if it has a text."""

    data: Markdown = ""
    rules: Markdown = ""
    evaluation: Markdown = ""
    prizes: Markdown = ""
    faq: Markdown = ""

    @property
    def shown(self) -> dict[str, str]:
        """The pages that have a text, by name, in their order."""
        return {name: text for name, text in self.model_dump().items() if text}


TITLES = {"data": "Data", "rules": "Rules", "evaluation": "Evaluation", "prizes": "Prizes", "faq": "FAQ"}
