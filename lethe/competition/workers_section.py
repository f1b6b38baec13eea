"""[workers]: whose machines may run a competition's submissions, and how their results are checked."""

from pydantic import Field

from lethe.competition.section import Section

# Of logit-scaled confidences. The same runs on other processors differ by less (docs/operators/workers.md).
TOLERANCE = 0.01


class Workers(Section):
    """Machines with worker tokens are untrusted, unless an administrator vouched for their token."""

    trusted_only: bool = Field(default=False, description="no untrusted machine runs a submission")
    verified_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="of an untrusted machine's runs, the share made again by a trusted one, if the instance's is less",
    )
    tolerance: float = Field(
        default=TOLERANCE,
        ge=0,
        le=0.1,
        description="how far the repeated outputs may differ; 0: by no bit (docs/operators/workers.md)",
    )
