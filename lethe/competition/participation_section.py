"""[participation] of the competition file: who takes part, and who sees the competition."""

from typing import Literal, Self

from pydantic import Field, model_validator

from lethe.competition.section import Section


class Participation(Section):
    """Who may take part (docs/organisers/participation.md)."""

    admission: Literal["open", "invited", "approved"] = Field(
        default="open",
        description="open: everybody; invited: by a link or an address of the organisers; approved: who they accept",
    )
    private: bool = Field(
        default=False, description="with invited: only those who may take part see the competition and its boards"
    )
    terms: str = Field(
        default="", max_length=100_000, description="Markdown; each version must be accepted before a submission"
    )
    confirmed_email: bool = Field(
        default=False, description="one account per confirmed e-mail address; without it accounts are not compared"
    )

    @model_validator(mode="after")
    def _is_found_by_somebody(self) -> Self:
        if self.private and self.admission != "invited":
            raise ValueError(
                f'private needs admission = "invited", had {self.admission!r}: nobody could ask to take part in what '
                "they do not see"
            )
        return self

    @property
    def is_open(self) -> bool:
        """Whether everybody takes part, without an account's address or terms being asked for."""
        return self.admission == "open" and not self.terms and not self.confirmed_email
