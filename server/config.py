"""Every setting of an instance, read once from the environment (prefix LETHE_). docs/operators/settings.md has each."""

import re
import secrets
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

from fsspec import available_protocols
from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from lethe.competition.estimates import MAX_PARAMETERS
from lethe.errors import InvalidInput
from server.environment import describe_wrong_values, socket_path

SCHEMES = {  # of each service's URL
    "database_url": ("sqlite", "postgresql", "postgresql+psycopg"),
    "redis_url": ("redis", "rediss", "redis+socket", "sentinel", "unix", "memory"),
    "storage_url": ("file", "s3"),
}
TRAINED_PARAMETER_BYTES = 16  # weights, gradient, momentum, and a copy in one of them


class Settings(BaseSettings):
    """Settings of one instance. Frozen: a process never changes them."""

    model_config = SettingsConfigDict(env_prefix="LETHE_", frozen=True, extra="ignore")

    environment: Literal["embedded", "production"] = Field(
        default="embedded", description="production refuses defaults that are only safe on one's own machine"
    )
    home: Path = Field(
        default_factory=lambda: Path.home() / ".lethe", description="folder where an embedded instance lives"
    )
    database_url: str = Field(default="", description="SQLAlchemy URL; empty: SQLite in the home folder")
    redis_url: str = Field(default="", description="Celery broker URL; empty: a private Redis in the home folder")
    storage_url: str = Field(default="", description="fsspec URL of the storage; empty: a folder in the home folder")
    secret_key: SecretStr = Field(
        default=SecretStr(""), description="key that signs cookies; empty: made once and kept in the home folder"
    )
    host: str = Field(default="127.0.0.1", description="address that the web server listens on")
    port: int = Field(default=8000, ge=0, le=65535, description="port that the web server listens on; 0: any free")
    proxies: str = Field(
        default="",
        description="addresses or networks, with commas, of proxies whose X-Forwarded-For is believed; empty: none",
    )
    public_url: str = Field(default="", description="address that people reach the server at, for links")
    worker_concurrency: int = Field(default=2, ge=1, le=256, description="shards that one worker runs at a time")
    worker_device: Literal["cpu", "cuda"] = Field(default="cpu", description="device of this worker")
    worker_threads: int = Field(default=1, ge=1, le=64, description="CPU threads of one run, and of its inference")
    worker_gpus: str = Field(
        default="0", pattern=r"^\d+(,\d+)*$", description="numbers of the GPUs that a cuda worker's processes share"
    )
    worker_memory_mib: int = Field(
        default=0, ge=0, description="memory in MiB that all runs of this worker may use together; 0: the host's"
    )
    network_memory_mib: int = Field(
        default=768,
        ge=64,
        description="memory in MiB that training one network on a CPU may take, at 16 bytes for each parameter; a "
        "network given as Python text has so much beside what its process starts with",
    )
    network_hours: float = Field(
        default=24.0, gt=0, description="processor hours that preparing a network given as Python text may take"
    )
    worker_competitions: str = Field(
        default="", description="slugs, with commas, of the only competitions that this worker serves; empty: all"
    )
    queue_competitions: str = Field(
        default="", description="comma-separated slugs of competitions that also have their own wake-up queues"
    )
    worker_prepares: bool = Field(default=True, description="whether this worker also prepares splits")
    close_grace_s: float = Field(
        default=10.0,
        ge=0,
        description="after a close, until finals are fixed: an upload that arrived in time may still be being stored",
    )
    preparation_share: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="share of all workers' processes that preparations may use while submissions wait; one at least",
    )
    preparation_hours_per_day: float = Field(
        default=0.0, ge=0, description="processor hours a day (UTC) of one organiser's preparations; 0: no limit"
    )
    preparation_memory_mib: int = Field(
        default=0, ge=0, description="memory of a process that prepares, MiB; 0: its share of the worker's"
    )
    preparation_disk_mib: int = Field(
        default=102_400, ge=1, description="disk that a split may take while it is prepared, MiB"
    )
    worker_drain_s: float = Field(
        default=0.0, ge=0, description="how long a stopping worker continues its shard before it returns it"
    )
    worker_downloads: Literal["server", "storage"] = Field(
        default="server",
        description="where remote workers fetch files: storage gives them presigned addresses of S3-compatible storage",
    )
    verified_share: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="of runs by organisers' own machines, the share that a trusted worker makes again; 0: none",
    )
    dataset_roots: str = Field(
        default="",
        description="folders, with commas, where relative roots of datasets are looked up; empty: datasets in the home",
    )
    dataset_upload_mib: int = Field(
        default=1024, ge=0, le=2047, description="largest dataset (zip) that an organiser may upload, MiB; 0: none"
    )
    dataset_unpacked_mib: int = Field(default=4096, ge=1, description="what such an archive may unpack to, MiB")
    datasets_mib_per_account: int = Field(
        default=4096, ge=0, description="what the archives of one account may have together, MiB"
    )
    keep_unused_datasets_days: int = Field(
        default=30, ge=0, description="age from which an uploaded dataset that no competition uses goes; 0: never"
    )
    sandbox_backend: Literal["bubblewrap", "plain"] = Field(
        default="bubblewrap", description="what confines participants' code; plain only in tests"
    )
    sandbox_required: Literal["baseline", "strict"] = Field(
        default="baseline", description="which protections this worker must have to take a shard; strict: all of them"
    )
    libraries_dir: Path | None = Field(
        default=None, description="folder of sets of older libraries for sandboxes; empty: libraries below LETHE_HOME"
    )
    lease_s: float = Field(
        default=60.0, gt=0, description="a shard whose worker is silent this long is given to another"
    )
    worker_takes: Literal["everything", "shards", "messages"] = Field(
        default="everything",
        description="what this worker does: shards (with scores and preparation), messages to people, or everything",
    )
    heartbeat_s: float = Field(default=1.0, gt=0, description="how often a worker reports progress")
    max_attempts: int = Field(
        default=3, ge=1, description="attempts at a shard, or at a preparation, before the host's fault is reported"
    )
    sweep_interval_s: float = Field(
        default=5.0, gt=0, description="how often lost leases and forgotten work are looked for"
    )
    cache_mib: int = Field(
        default=20_480, ge=1, description="disk that splits from remote storage may take on this host, MiB"
    )
    keep_logs_days: int = Field(default=90, ge=0, description="how long what runs printed is kept; 0: for ever")
    keep_garbage_hours: float = Field(
        default=24.0, ge=0, description="age from which files that nothing refers to may be collected"
    )
    metrics_token: SecretStr = Field(
        default=SecretStr(""), description="token that /metrics asks for; empty: open, but off in production"
    )
    worker_metrics_port: int = Field(
        default=0, ge=0, le=65535, description="port on which a worker shows its counts to Prometheus; 0: none"
    )
    session_days: int = Field(default=30, ge=1, description="how long a log-in lasts")
    uploads_per_10_min: int = Field(
        default=30, ge=0, description="files that one account may send in ten minutes, refused ones too; 0: any number"
    )
    body_within_s: float = Field(default=7200.0, ge=0, description="how long a whole body may take; 0: any time")
    streams_per_account: int = Field(
        default=20, ge=0, description="live pages that one account, or one address, has open; 0: any number"
    )
    streams: int = Field(default=500, ge=0, description="live pages open in one web process; 0: any number")
    registrations_per_hour: int = Field(
        default=60, ge=0, description="accounts that one address of the internet may register in an hour; 0: any number"
    )
    open_registration: bool = Field(default=True, description="whether anyone may register an account")
    webhooks_to_private: bool = Field(
        default=False, description="send webhooks also to addresses of private networks, in a closed installation"
    )
    smtp_host: str = Field(default="", description="mail server; empty: this instance sends no mail")
    smtp_port: int = Field(default=587, ge=1, le=65535, description="port of the mail server")
    smtp_tls: Literal["starttls", "implicit", "none"] = Field(
        default="starttls",
        description="how the connection to the mail server is encrypted; none only without a password",
    )
    smtp_user: str = Field(default="", description="name to log in to the mail server with; empty: no log-in")
    smtp_password: SecretStr = Field(default=SecretStr(""), description="password of that name")
    mail_from: str = Field(default="", description="address that mail is sent from")
    telemetry: bool = Field(
        default=False, description="traces by OpenTelemetry; needs the group `telemetry`, OTEL_ variables say where to"
    )
    log_json: bool = Field(default=False, description="logs as JSON lines instead of text for people")

    @field_validator("database_url", "redis_url", "storage_url")
    @classmethod
    def _names_a_service(cls, url: str, info: ValidationInfo) -> str:
        """Reject an address that cannot be connected to, by the setting's name."""
        allowed = SCHEMES[str(info.field_name)]
        scheme, separator, _ = url.partition("://")
        if not url or (info.field_name == "storage_url" and (url.startswith("/") or scheme in available_protocols())):
            return url
        if not separator or scheme not in allowed:
            raise ValueError(f"must begin with {', '.join(f'{each}://' for each in allowed)}")
        if info.field_name == "database_url":
            try:
                make_url(url)
            except (ArgumentError, ValueError) as error:
                raise ValueError("is no URL such as postgresql+psycopg://user:password@host/name") from error
        return url

    @model_validator(mode="after")
    def _production_has_no_defaults(self) -> Self:
        if self.environment == "production":
            missing = [
                f"LETHE_{name.upper()}"
                for name in ("database_url", "redis_url", "storage_url", "secret_key", "public_url")
                if not _given(getattr(self, name))
            ]
            if missing:
                raise ValueError(f"LETHE_ENVIRONMENT=production needs {', '.join(missing)}")
            if self.sandbox_backend == "plain":
                raise ValueError("LETHE_SANDBOX_BACKEND=plain confines nothing and is refused in production")
        return self

    @model_validator(mode="after")
    def _required_controls_can_be_had(self) -> Self:
        if self.sandbox_required == "strict" and self.sandbox_backend == "plain":
            raise ValueError("LETHE_SANDBOX_REQUIRED=strict cannot be had from LETHE_SANDBOX_BACKEND=plain")
        return self

    @model_validator(mode="after")
    def _mail_can_be_sent(self) -> Self:
        if self.smtp_host and not re.fullmatch(r"[^@\s]+@[^@\s]+", self.mail_from):
            raise ValueError(f"LETHE_SMTP_HOST needs LETHE_MAIL_FROM=someone@example.org; it was {self.mail_from!r}")
        if bool(self.smtp_user) != bool(self.smtp_password.get_secret_value()):
            raise ValueError("LETHE_SMTP_USER and LETHE_SMTP_PASSWORD are given together or not at all")
        if self.smtp_user and self.smtp_tls == "none":
            raise ValueError("LETHE_SMTP_TLS=none would send the password unencrypted; use starttls or implicit")
        return self

    @property
    def resolved_database_url(self) -> str:
        return self.database_url or f"sqlite:///{self.home.absolute() / 'lethe.db'}"

    @property
    def resolved_redis_url(self) -> str:
        return self.redis_url or f"redis+socket://{self.redis_socket}"

    @property
    def redis_socket(self) -> Path:
        return socket_path(self.home.absolute() / "redis")

    @property
    def resolved_storage_url(self) -> str:
        return self.storage_url or (self.home.absolute() / "storage").as_uri()

    @property
    def trusted_proxies(self) -> list[str]:
        """Addresses and networks that say truly whom they speak for."""
        return list(_words(self.proxies))

    @property
    def own_queues(self) -> frozenset[str]:
        """Slugs of the competitions that have queues of their own."""
        return frozenset(_words(self.queue_competitions))

    @property
    def competitions_served(self) -> tuple[str, ...] | None:
        """Slugs of the only competitions that this worker serves, None for all."""
        return _words(self.worker_competitions) or None

    @property
    def dataset_folders(self) -> tuple[Path, ...]:
        """Folders of this host that datasets may be read from."""
        return tuple(Path(word) for word in _words(self.dataset_roots)) or (self.home.absolute() / "datasets",)

    @property
    def max_parameters(self) -> int:
        """Parameters of the largest network that this worker builds; of a GPU's own memory nothing is known here."""
        if self.worker_device != "cpu":
            return MAX_PARAMETERS
        return min(MAX_PARAMETERS, self.network_memory_mib * 2**20 // TRAINED_PARAMETER_BYTES)

    @property
    def library_sets(self) -> Path:
        """Folder of this host with the installed sets of older libraries."""
        return self.libraries_dir or self.home.absolute() / "libraries"

    @property
    def scratch(self) -> Path:
        """Folder of this host for what may vanish: staged code, caches."""
        return self.home.absolute() / "scratch"

    def signing_key(self) -> bytes:
        """Return the key that signs cookies, making and keeping one on an embedded instance."""
        given = self.secret_key.get_secret_value()
        return given.encode() if given else _kept_key(self.home)


@lru_cache
def _kept_key(home: Path) -> bytes:
    """Return the key in the home folder, made at the first call of the first process. Pages ask for it many times."""
    path = home / "secret_key"
    if not path.exists():
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        candidate = home / f".secret_key-{secrets.token_hex(8)}"
        candidate.touch(mode=0o600)
        candidate.write_text(secrets.token_hex(32))
        try:
            path.hardlink_to(candidate)  # the first of several processes wins
        except FileExistsError:
            pass
        finally:
            candidate.unlink()
    return path.read_text().encode()


def _words(listed: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in listed.split(",") if word.strip())


def _given(value: str | SecretStr) -> bool:
    return bool(value.get_secret_value() if isinstance(value, SecretStr) else value)


@lru_cache
def get_settings() -> Settings:
    """Return this process's settings. Raises InvalidInput naming every variable with a value that cannot be."""
    try:
        return Settings()
    except ValidationError as error:
        raise InvalidInput(describe_wrong_values(error)) from None
