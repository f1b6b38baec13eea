"""/api/v1: sending code, and what becomes of it."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response, status
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.admission import AdmissionDep
from server.api.auth_dependencies import Credentials, CurrentAccount, VisibleCompetition, find_caller
from server.api.submissions.schemas import AcceptedSubmission, ExplanationOut, ReceiptKey, SubmissionForm, SubmissionOut
from server.competitions import competitions
from server.competitions.stored_file import stored_file
from server.db import now
from server.deps import SessionDep, SettingsDep, StorageDep, UnadmittedDatabase
from server.evaluations.unserved import find_wait
from server.finals import finals
from server.models.account import Account
from server.models.competition import Competition
from server.models.submission import Submission
from server.problem_details import problems
from server.received_form import FORM
from server.submissions import receipts, submissions, upload_check, views
from server.submissions.quota import Quota
from server.submissions.sample_answers import SampleAnswers, read_sample_answers
from server.submissions.score_explanation import find_context, find_explanation
from server.submissions.upload_check import CheckedUpload, check_for, receive, store_again_if_collected
from server.submissions.views import SubmissionView
from server.teams import teams

router = APIRouter(tags=["submissions"])

QUOTA_HEADERS = {
    "X-Quota-Limit": {"description": "submissions a day", "schema": {"type": "integer"}},
    "X-Quota-Remaining": {"description": "submissions left now", "schema": {"type": "integer"}},
    "X-Quota-Reset": {"description": "when the next UTC day begins", "schema": {"type": "string"}},
}
UPLOAD_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {FORM: {"schema": SubmissionForm.model_json_schema()}}}
}


def own_submission(submission_id: str, session: SessionDep, account: CurrentAccount) -> Submission:
    """Return the submission of the path, which the caller may see. Raises NotFound."""
    return submissions.get_own(session, submission_id, account)


OwnSubmission = Annotated[Submission, Depends(own_submission)]


def team_submission(submission_id: str, session: SessionDep, account: CurrentAccount) -> Submission:
    """Return the submission of the path, of the caller's own team. Raises NotFound."""
    return submissions.get_of_my_team(session, submission_id, account)


TeamSubmission = Annotated[Submission, Depends(team_submission)]


@router.post(
    "/competitions/{slug}/submissions",
    status_code=status.HTTP_201_CREATED,
    responses={**problems(401, 404, 409, 415), 201: {"headers": QUOTA_HEADERS}},
    openapi_extra=UPLOAD_BODY,
)
async def submit(
    slug: str,
    request: Request,
    *,
    response: Response,
    admission: AdmissionDep,
    database: UnadmittedDatabase,
    storage: StorageDep,
    settings: SettingsDep,
    credentials: Credentials,
) -> AcceptedSubmission:
    """Send a submission: a `.py` file with a function `unlearning`, an `.ipynb` notebook, or a `.zip`.

    It is checked without being run; a file that cannot be run is refused with its line and costs no quota. Once
    this answers 201, the submission is stored and ends in a score or a named failure. What counts for the deadline
    is when the last byte came. Sent to the address of a task, it goes to its competition, for this task alone.
    """
    account, competition, task = await admission.read(database, _admit, request, credentials, slug)
    upload_check.take(settings, account.id)
    file = stored_file(competition)
    upload = await receive(request, limit_mib=file.limits.upload_mib)
    if task:
        upload = replace(upload, tasks=(task,))
    checked = await check_for(storage, upload, account_id=account.id, file=file)
    view, quota = await admission.write(database, _take, request, competition, credentials, checked=checked)
    await admission.long_work(store_again_if_collected, storage, checked)
    response.headers.update(quota.headers())
    response.headers["Location"] = f"/api/v1/submissions/{view.submission.id}"
    return AcceptedSubmission.of(view, quota=quota)


@router.get("/competitions/{slug}/submissions", responses=problems(401, 404))
def list_submissions(
    session: SessionDep, competition: VisibleCompetition, account: CurrentAccount, response: Response
) -> list[SubmissionOut]:
    """List your team's submissions, the newest first."""
    response.headers.update(submissions.get_quota(session, competition, account, at=now()).headers())
    mine = submissions.list_own(session, competition, account)
    return [SubmissionOut.of(view) for view in views.view(session, mine)]


@router.get("/submissions/{submission_id}", responses=problems(401, 404))
def show_submission(session: SessionDep, submission: OwnSubmission) -> SubmissionOut:
    """Show a submission of your team: its stage, its progress, its score or why it failed."""
    view = views.view(session, [submission])[0]
    shown = SubmissionOut.of(view)
    split = competitions.find_split(session, submission.competition, Visibility.PUBLIC)
    explanation = find_explanation(session, view, split)
    more = {
        "context": find_context(session, view, split),
        "wait": find_wait(session, submission),
        "explanation": ExplanationOut.model_validate(explanation) if explanation else None,
    }
    return shown.model_copy(update=more)


@router.post("/submissions/{submission_id}/cancel", responses=problems(401, 404, 409))
def cancel_submission(session: SessionDep, submission: TeamSubmission, account: CurrentAccount) -> SubmissionOut:
    """Cancel a submission. Before its first run began, it does not count against the quota.

    A run that the organisers asked for is theirs to cancel: 409.
    """
    cancelled = submissions.cancel(session, submission, actor=account)
    return SubmissionOut.of(views.view(session, [cancelled])[0])


@router.put("/submissions/{submission_id}/selection", responses=problems(401, 404, 409))
def select_submission(session: SessionDep, submission: TeamSubmission, account: CurrentAccount) -> SubmissionOut:
    """Choose a submission for the private board. Without a choice, the best public ones are taken at the close."""
    finals.choose(session, submission, selected=True, actor=account)
    return SubmissionOut.of(views.view(session, [submission])[0])


@router.delete("/submissions/{submission_id}/selection", responses=problems(401, 404, 409))
def deselect_submission(session: SessionDep, submission: TeamSubmission, account: CurrentAccount) -> SubmissionOut:
    """Take the choice of a submission back."""
    finals.choose(session, submission, selected=False, actor=account)
    return SubmissionOut.of(views.view(session, [submission])[0])


@router.put("/submissions/{submission_id}/publication", responses=problems(401, 404))
def allow_publication(session: SessionDep, submission: TeamSubmission, account: CurrentAccount) -> SubmissionOut:
    """Allow publishing the code with the results after the end. Private by default."""
    receipts.allow(session, submission, allowed=True, actor=account)
    return SubmissionOut.of(views.view(session, [submission])[0])


@router.delete("/submissions/{submission_id}/publication", responses=problems(401, 404))
def withdraw_publication(session: SessionDep, submission: TeamSubmission, account: CurrentAccount) -> SubmissionOut:
    """Take that back, for what is published from now on."""
    receipts.allow(session, submission, allowed=False, actor=account)
    return SubmissionOut.of(views.view(session, [submission])[0])


@router.get("/competitions/{slug}/finals", responses=problems(401, 404))
def show_finals(session: SessionDep, competition: VisibleCompetition, account: CurrentAccount) -> list[SubmissionOut]:
    """List which of your team's submissions go to the private board: those chosen, else the best public ones."""
    team = teams.own_team(session, competition, account)
    ids = finals.would_count(session, competition, team.id)
    mine = [submission for submission in submissions.list_own(session, competition, account) if submission.id in ids]
    return [SubmissionOut.of(view) for view in views.view(session, mine)]


@router.get(
    "/submissions/{submission_id}/code",
    response_class=Response,
    responses={**problems(401, 404), 200: {"content": {"application/octet-stream": {}}}},
)
def download_code(submission: OwnSubmission, storage: StorageDep) -> Response:
    """Download the file as it was received."""
    name = f'attachment; filename="{submission.id}.{submission.kind}"'
    headers = {"Content-Disposition": name, "X-Content-Type-Options": "nosniff"}
    return Response(submissions.read_code(storage, submission), media_type="application/octet-stream", headers=headers)


@router.get(
    "/submissions/{submission_id}/log",
    response_class=Response,
    responses={**problems(401, 404), 200: {"content": {"text/plain": {}}}},
)
def show_log(session: SessionDep, submission: OwnSubmission) -> Response:
    """Show what the run on the public sample printed. What runs on hidden data print is shown to nobody."""
    headers = {"X-Content-Type-Options": "nosniff"}
    return Response(submissions.sample_log(session, submission), media_type="text/plain", headers=headers)


@router.get("/submissions/{submission_id}/sample-answers", responses=problems(401, 404))
def show_sample_answers(session: SessionDep, storage: StorageDep, submission: OwnSubmission) -> SampleAnswers:
    """Show the public sample's forget questions with the answers of the original, a retrained and your language model.

    They come with the run on the public sample. 404 where the competition's models answer no questions.
    """
    return read_sample_answers(session, storage, submission)


@router.get("/submissions/{submission_id}/receipt", responses=problems(401, 404))
def show_receipt(
    session: SessionDep,
    settings: SettingsDep,
    *,
    submission: OwnSubmission,
    account: CurrentAccount,
    split: Visibility = Visibility.PUBLIC,
) -> dict[str, Any]:
    """Show the signed receipt of a score: what it was made of. `lethe verify` checks it.

    That of the private split is shown to organisers, and to the team once the board is revealed.
    """
    is_organiser = competitions.is_organiser(session, submission.competition, account)
    return receipts.issue(session, settings, submission, split, is_organiser=is_organiser)


@router.get("/receipt-key")
def show_receipt_key(settings: SettingsDep) -> ReceiptKey:
    """Show the key that this instance signs receipts with (Ed25519, base64)."""
    return ReceiptKey(public_key=receipts.public_key_text(settings))


def _admit(session: Session, request: Request, credentials: Credentials, slug: str) -> tuple[Account, Competition, str]:
    """Return who sends to what, and for which task if the address names one, before anything of the body is read."""
    account = find_caller(session, request, credentials)
    addressed = competitions.get(session, slug, account=account)
    competition = competitions.root(session, addressed)
    submissions.check_may_submit(session, competition, account, at=now())
    return account, competition, addressed.task_name or ""


def _take(
    session: Session, request: Request, competition: Competition, credentials: Credentials, *, checked: CheckedUpload
) -> tuple[SubmissionView, Quota]:
    account = find_caller(session, request, credentials)  # who may have been banned, or have gone, while the file came
    view = submissions.accept(session, competition, account, checked)
    return view, submissions.get_quota(session, competition, account, at=checked.upload.received_at)
