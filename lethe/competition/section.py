"""What every section of the competition file has in common: no unknown key, no change after it is read."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of a section's model."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
