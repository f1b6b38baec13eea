"""What a team or a visitor sees that is of no `Shown...` type, and why that is right.

Each entry names a class (of a response, or of a value handed to a page; `page` stands for a page's own names) and its
fields. A field that is neither of a type of the gate nor named here fails tests/server/disclosure/test_fields.py. So
does a name here that no longer exists.
"""

from collections.abc import Mapping

Fields = Mapping[str, str]  # names of fields by class, with spaces between

ANY = "*"

# What functions of the gate and of `shown_progress` return in types of their own, or in dictionaries.
GATE_FIELDS: Mapping[str, Fields] = {
    "shown_progress": {
        "EvaluationProgress": "runs_done runs_total elapsed_s remaining_s",
        "AttemptEntry": "first_run last_run kind attempt outcome started_at ended_at",
        "Event": "text at kind",
        "page": "done counts",
    },
    "failure": {
        "FailureOut": "line withheld bits remaining_bits renews_at",
        "Submission": "error",
        "FailureTexts": "title message exception_type file line advice",
        "ExcerptLine": "number text at_fault",
        "page": "raised excerpt",
    },
    "score": {"page": "state_in_words"},
    "paired": {"ShownPaired": "winner"},
    "receipts_shown": {"page": "receipts receipt split parsed"},
    "may_see_private": {"page": "may_see_private"},
    "shows_ladder": {"page": "is_ladder"},
}

# What carries a message about hidden data, and is counted or bounded.
COUNTED: Mapping[str, Fields] = {
    "its class, priced with the run at 5 + log2(N + 1) bits by leak_budget": {
        "FailureOut": "fault error_class",
        "Submission": "fault error_class refunded",
        "SubmissionOut": "refunded",
    },
    "one bit, whatever the reason: BITS_OF_A_CONFIRMATION": {"ShownScore": "is_unconfirmed"},
    "that it ended, and when: bits_of_the_end": {
        "SubmissionOut": "stage wait",
        "PartOut": "stage",
        "Submission": "stage finished_at",
        "Step": "label state",
        "page": "steps is_live in_progress wait waits",
        "Wait": "reason ahead seconds",
    },
}

HARMLESS_FIELDS: Mapping[str, Fields] = {
    "made from values of the gate alone": {
        "LeaderboardRow": "rank metrics",
        "Row": "rank",
        "Board": "version visibility",
        "Matrix": "names rows",
        "BoardPlace": "rank teams best_id",
        "BreakdownView": "columns factors ticks end",
        "Explanation": "costs log_loss differences rule",
        "ExplanationOut": "costs differences advice",
        "Difference": "score factors",
        "ScoreParts": (
            "forgetting_quality retain_ratio test_ratio epsilon_percentiles spread_ratio share_above attacks"
        ),
        "ScoreContext": "advice",
        "ScoreReference": "kind name",
        "Spread": "name css low lower middle upper high label",
        "MetricLine": "table",
        "Strip": "top teams is_histogram baselines oracle own label",
        "page": (
            "rows_html moves has_moves has_unconfirmed has_intervals interval_ticks scale axes keys heat figure_query"
        ),
    },
    "groups of the intervals, which organisers open with them": {
        "LeaderboardRow": "tied_group",
        "Row": "tied_group",
        "Entry": "tied_group",
    },
    "tells of single examples: given to organisers alone": {"HardExample": "example epsilon share", "page": "token"},
    "sent by its team, or known when it was received": {
        "SubmissionOut": (
            "id competition team submitted_by filename sha256 size_bytes mode program notes message received_at phase "
            "is_official part_of"
        ),
        "PartOut": "task competition id",
        "Submission": (
            "account_id competition_id content_sha256 entry_point filename id kind message received_at request_id "
            "parent_id size_bytes team_id phase is_official"
        ),
        "ComparedSubmission": "id team note",
        "page": "s files choices chosen candidates offered wanted sent_tasks",
    },
    "an act of the team or of the organisers; at the close, when nothing can be submitted any more, of the server": {
        "SubmissionOut": "selected publish_code can_cancel",
        "Submission": "selected publish_code excluded_at disqualified_at",
        "SubmissionView": "can_cancel",
        "page": "can_choose may_be_chosen would_count final_selections",
    },
    "counts of submissions, teams and days": {
        "Quota": (
            "per_day total used_today remaining remaining_today remaining_total resets_at phase free_failures_left"
        ),
        "LeaderboardPage": (
            "as_of competition board phase teams total offset scores_verified n_models smallest_detectable_shift "
            "warnings"
        ),
        "LeaderboardRow": "kind team_id team entries last_entry_at mode",
        "Entry": "kind team_id team entries last_entry_at mode received_at submission_id",
        "Summary": "teams",
        "page": "page_number pages first_line last_line total has_more next_url page_url own_url query used_up unsent",
    },
    "of the public sample, which hides nothing": {
        "SampleAnswers": "id note",
        "SampleAnswer": "question answer original retrained unlearned",
        "page": "sample_log traceback sample_answers has_pictures run_warnings",
    },
    "of the documentation, or how far preparations are, which nobody has sent anything for": {
        "HelpPage": "name title html sections",
        "HelpSection": "page anchor title heading text",
        "page": "shown pages found preparing preparing_unseen named settings best_id best_name has_costs",
    },
    "of the catalogue of metrics, of the scorer or of the program": {
        "MetricOut": "id title unit direction capture_levels source formula paper_and_code",
        "MetricValue": "id title unit direction parameters waiting",
        "SubmissionMetrics": "split n_models",
        "Column": "id title unit direction",
        "SubmissionComparison": "visibility",
        "ComparedMetric": "key",
        "MetricLine": "better formula source",
        "MetricTable": "split",
        "ShownScore": "scorer_version",
        "Breakdown": "epsilon_percentiles",
        "ReceiptKey": "public_key",
        "Health": "status",
        "Readiness": "ready database storage queue",
        "ListQuery": "number show",
        "Separation": "epsilon points shift threshold_x",
        "page": "few_models detectable_shift better most compared separations separations_json shown_first curve code",
    },
    "of the competition, as its organisers wrote it": {
        "CompetitionOut": (
            "slug title summary state opens_at closes_at metric scale dataset runs scores_verified task_name"
        ),
        "LeaderboardPage": "scale",
        "TaskOut": "name slug title kind dataset runs weight",
        "Phase": "name begins_at counts submissions_per_day submissions_total",
        "Late": "accepted until submissions_per_day",
        "CompetitionPage": "description merge_deadline modes libraries admission private",
        "Period": ("name counts per_day total"),
        "Limits": ANY,
        "RunLimit": "wall_time_s cpu_time_s training_s",
        "AnnouncementOut": "id title text author created_at",
        "Competition": (
            "archive_key cell_key closed_at closes_at config created_at created_by frozen_at id opens_at revealed_at "
            "parent_id scores_verified slug source state summary task_name task_place title"
        ),
        "Board": "n_models",
        "Place": "file is_organiser",
        "Card": "group has_results is_mine",
        "page": (
            "timeline announcements period phase phases "
            "n_forget run_limit limit_warnings libraries is_private is_sealed is_revealed "
            "closed limits source_mib at"
        ),
    },
    "of accounts, whose tables no evaluation writes": {
        "AccountOut": ANY,
        "NewToken": ANY,
        "TokenOut": ANY,
        "Account": ANY,
        "ApiToken": ANY,
        "WebSession": ANY,
    },
    "of teams and of whoever reads": {
        "TeamOut": "id name leader members created_at",
        "InvitationOut": "id team name expires_at token",
        "Standing": "admission state reason may_take_part terms_version accepted_at lacks_address shares_address",
        "CompetitionTerms": "version text",
        "PageOut": "name title text",
        "ShownQuestion": "id question answer created_at answered_at is_public is_mine",
        "MergeOut": "id team into created_at",
        "Team": (
            "competition_id created_at disqualified_at id is_baseline leader_id extended_until merged_into_id name "
            "name_key served_at"
        ),
        "Reader": "id name role",
        "page": (
            "viewer is_staff is_mine is_own may_grow may_leave leads link invitations invited members merges name back "
            "theme public_url tab flash message error http_status request_id request csrf account dead_because email "
            "is_asked is_open issued next sends_mail sessions stays_because this_session tokens why wrong address "
            "codes codes_left barred "
            "standing competition may_have_data text titles questions longest "
            "has_second_factor is_confirmed is_on needs_code scopes setup "
            "usual_scope"
        ),
    },
}

DECLARED: tuple[Mapping[str, Fields], ...] = (GATE_FIELDS, COUNTED, HARMLESS_FIELDS)
