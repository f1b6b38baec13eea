"""Revision 0014 renames columns of a stored instance, forwards and back, and keeps what they hold."""

from datetime import UTC, datetime

from alembic import command
from sqlalchemy import text, update

from server.migrate import alembic_config, upgrade
from server.models.evaluation import Disclosure, Evaluation, Shard

BEFORE = "0013"
DISCLOSED_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_stored_instance_keeps_values_under_new_names(database, migrated_url, competition, submit):
    submission = submit("a")
    with database.write() as session:
        session.execute(update(Shard).values(failed_attempts=2))
        evaluation = session.query(Evaluation).filter_by(submission_id=submission.id).one()
        session.add(
            Disclosure(submission_id=submission.id, evaluation_id=evaluation.id, bits=1.5, disclosed_at=DISCLOSED_AT)
        )
    command.downgrade(alembic_config(migrated_url), BEFORE)
    with database.read() as session:
        assert set(session.scalars(text("SELECT strikes FROM shards"))) == {2}
        assert len(session.scalars(text("SELECT told_at FROM disclosures")).all()) == 1
    upgrade(migrated_url)
    with database.read() as session:
        assert {shard.failed_attempts for shard in session.query(Shard)} == {2}
        assert session.query(Disclosure).one().disclosed_at == DISCLOSED_AT
    if migrated_url.startswith("postgresql"):  # SQLite tells no width of a float
        command.check(alembic_config(migrated_url))
