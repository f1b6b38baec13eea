"""[limits] of the competition file."""

from typing import Literal

from pydantic import Field

from lethe.competition.section import Section


class Limits(Section):
    """What one submission may use."""

    wall_time_s: float = Field(default=8 * 3600, gt=0, description="all runs of an evaluation together, seconds")
    run_wall_time_s: float | None = Field(default=None, gt=0, description="one run, seconds")
    run_fraction_of_retraining: float | None = Field(
        default=0.2, gt=0, description="one run, as a share of one retraining; of the processor where there is no GPU"
    )
    run_start_time_s: float = Field(
        default=1.0, ge=0, description="processor seconds beyond that share and an empty run's, for imports"
    )
    run_wall_time_floor_s: float = Field(
        default=5.0, gt=0, description="a run is never given less time by the clock, seconds"
    )
    run_cpu_time_s: float | None = Field(
        default=None, gt=0, description="processor seconds of one run; default: its time, twice or on each thread"
    )
    run_idle_time_s: float = Field(
        default=20.0, ge=1, description="a run that uses no processor for so long is ended, seconds"
    )
    isolation: Literal["process", "shard"] = Field(
        default="process",
        description="on a GPU: a fresh process for each run, or one for a shard's runs, which is quicker and weaker",
    )
    memory_mib: int = Field(default=2048, ge=128)
    processes: int = Field(default=64, ge=1)
    scratch_mib: int = Field(default=256, ge=1)
    log_kib: int = Field(default=256, ge=1)
    leak_bits_per_day: float = Field(
        default=64.0,
        ge=0,
        le=100_000,
        description="bits that a team's failures on hidden data may reveal per UTC day; 0: only the error class",
    )
    upload_mib: int = Field(default=20, ge=1)
    submissions_per_day: int = Field(default=5, ge=1)
    submissions_total: int | None = Field(default=None, ge=1)
    final_selections: int = Field(default=2, ge=1)
    team_size: int = Field(default=5, ge=1)
