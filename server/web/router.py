"""All pages. `server.main` includes `router` and adds `server.middleware.SecurityHeaders`.

An address that no page has is answered by `not_found_page`, which `server.main` may give to people's browsers.
"""

from fastapi import APIRouter

from server.web import (
    account_pages,
    assets,
    auth_pages,
    comparison_pages,
    competition_pages,
    dataset_pages,
    help_pages,
    leaderboard_pages,
    participation_pages,
    question_pages,
    submission_pages,
    submit_pages,
    team_pages,
)
from server.web.organiser import competition_pages as organising_pages
from server.web.organiser import dashboard_pages, data_pages, edit_pages, moderation_pages, rejudging_pages
from server.web.organiser import participation_pages as organised_participation_pages
from server.web.organiser import submission_pages as organised_submission_pages

router = APIRouter()
for pages in (
    assets,
    help_pages,
    auth_pages,
    account_pages,
    competition_pages,
    leaderboard_pages,
    comparison_pages,
    submit_pages,
    dataset_pages,
    team_pages,
    participation_pages,
    question_pages,
    dashboard_pages,  # these before what takes any word for a competition's name
    data_pages,
    organising_pages,
    organised_submission_pages,
    edit_pages,
    organised_participation_pages,
    rejudging_pages,
    moderation_pages,
    submission_pages,
):
    router.include_router(pages.router)
