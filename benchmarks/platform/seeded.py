"""A database as big as a competition's close: teams, submissions, evaluations and queued shards, made by SQL alone."""

from sqlalchemy import text

from lethe.competition.file import CompetitionFile
from server.db import Database

SHARDS_PER_EVALUATION = 8
RUNS_PER_SHARD = 64


def seed(database: Database, file: CompetitionFile, *, teams: int, shards: int) -> None:
    """Fill an empty migrated PostgreSQL database with `shards` queued shards, spread evenly over `teams` teams.

    The first team floods: a tenth of all shards are its own.
    """
    evaluations = shards // SHARDS_PER_EVALUATION
    steps = (
        """INSERT INTO accounts (id, name, name_key, password_hash, role, created_at)
           SELECT lpad(i::text, 16, '0'), 'person-' || i, 'person-' || i, 'x', 'participant', now()
           FROM generate_series(0, :teams) i""",
        """INSERT INTO competitions (id, slug, title, summary, state, opens_at, closes_at, config, source,
                                     created_at, created_by)
           VALUES ('c', :slug, 'Big', '', 'open', now() - interval '1 day', now() + interval '1 day',
                   CAST(:config AS json), '', now(), lpad('0', 16, '0'))""",
        """INSERT INTO splits (id, competition_id, visibility, state, stage, progress, attempt, error,
                               manifest_sha256, versions, retraining_time_s)
           SELECT v, 'c', v, 'ready', '', 1, 1, '', repeat('0', 64), '{}', 1
           FROM unnest(ARRAY['public', 'private']) v""",
        """INSERT INTO teams (id, competition_id, name, name_key, leader_id, is_baseline, created_at)
           SELECT md5('team' || i)::char(16), 'c', 'team-' || i, 'team-' || i, lpad(i::text, 16, '0'), false, now()
           FROM generate_series(1, :teams) i""",
        """INSERT INTO submissions (id, competition_id, team_id, account_id, filename, kind, content_sha256,
                size_bytes, entry_point, message, request_id, received_at, stage, refunded, selected)
           SELECT md5('submission' || i)::char(16), 'c', md5('team' || t)::char(16), lpad(t::text, 16, '0'), 'a.py',
                  'py', repeat('0', 64), 1, '{"file": "a.py"}', '', '', now(), 'queued', false, false
           FROM (SELECT i, CASE WHEN i % 10 = 0 THEN 1 ELSE 1 + i % :teams END AS t
                 FROM generate_series(1, :evaluations) i) numbered""",
        """INSERT INTO evaluations (id, submission_id, split_id, scorer_version, rejudging_id, is_current, state,
                                    n_runs, priority, created_at)
           SELECT md5('evaluation' || i)::char(16), md5('submission' || i)::char(16), 'public', '1', '', true,
                  'queued', 512, 0, now()
           FROM generate_series(1, :evaluations) i""",
        """INSERT INTO shards (evaluation_id, team_id, split_id, competition_id, kind, first_run, n_runs, state,
                               turn, attempt, failed_attempts, runs_done, wall_time_s, queued_at)
           SELECT e.id, s.team_id, 'public', 'c', 'runs', k * 64, 64, 'queued', 400000000 + r.round,
                  0, 0, 0, 0, now()
           FROM generate_series(1, :evaluations) i
           JOIN evaluations e ON e.id = md5('evaluation' || i)::char(16)
           JOIN submissions s ON s.id = e.submission_id
           JOIN (SELECT id, row_number() OVER (PARTITION BY team_id) - 1 AS round FROM submissions) r ON r.id = s.id
           CROSS JOIN generate_series(0, 7) k""",
    )
    values = {
        "teams": teams,
        "evaluations": evaluations,
        "slug": file.slug,
        "config": file.model_dump_json(),
    }
    with database.engine.begin() as connection:
        for step in steps:
            connection.execute(text(step), {name: value for name, value in values.items() if f":{name}" in step})
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
