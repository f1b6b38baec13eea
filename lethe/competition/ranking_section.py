"""[ranking] of the competition file: what puts submissions in order."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from lethe.competition.section import Section

SCORE = "score"
JOINT_AUDIT = "joint_audit"
COMBINED = {"mean": "mean", "harmonic-mean": "harmonic mean", "worst": "worst"}


class Ranking(Section):
    """What ranks: the score, one metric, or several combined (docs/organisers/scoring.md)."""

    by: tuple[str, ...] = Field(
        default=(SCORE,), min_length=1, max_length=8, description='"score" and ids out of report.metrics'
    )
    combine: Literal["mean", "harmonic-mean", "worst"] = Field(
        default="mean", description="of several, each on the scale from the original model (0) to exact retraining (1)"
    )
    min_retain_ratio: float | None = Field(
        default=None, gt=0, le=1, description="a submission whose retain ratio is lower ranks as 0"
    )
    min_test_ratio: float | None = Field(
        default=None, gt=0, le=1, description="a submission whose test ratio is lower ranks as 0"
    )

    max_joint_audit: float | None = Field(
        default=None,
        gt=0.5,
        lt=1,
        description="a submission of which the metric joint_audit is higher ranks as 0: its models are told from "
        "retrained ones by the whole forget set, though each example looks retrained",
    )

    @field_validator("by", mode="before")
    @classmethod
    def _one_as_several(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        if twice := [name for name in self.by if self.by.count(name) > 1]:
            raise ValueError(f"by names {twice[0]!r} twice")
        return self

    @property
    def is_by_score(self) -> bool:
        """Whether the score alone is the value, as it was published; gates may still make it 0."""
        return self.by == (SCORE,)

    @property
    def needs_metrics(self) -> bool:
        """Whether metrics must be computed before a submission ranks."""
        return not self.is_by_score or self.max_joint_audit is not None

    @property
    def in_words(self) -> str:
        """Return what ranks as a phrase, for pages and answers."""
        gates = {"retain ratio": self.min_retain_ratio, "test ratio": self.min_test_ratio}
        asked = [f"{name} of at least {least:g}" for name, least in gates.items() if least is not None]
        if self.max_joint_audit is not None:
            asked.append(f"joint audit of at most {self.max_joint_audit:g}")
        named = ", ".join(self.by)
        what = named if len(self.by) == 1 else f"{COMBINED[self.combine]} of {named}"
        return " with ".join([what, *([" and ".join(asked)] if asked else [])])
