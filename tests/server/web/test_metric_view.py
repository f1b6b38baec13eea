"""A submission's page shows the metrics that its viewer may see, beside their references."""

from tests.support.instance import Instance
from tests.support.metric_results import compute, scored
from tests.support.web import Visitor, plain_text


def test_page_shows_value_oracle_and_original(server: Instance, visitor: Visitor) -> None:
    submission = scored(server)
    compute(server, submission)
    visitor.log_in("ada")
    page = plain_text(visitor.get(f"/submissions/{submission}").text)
    assert "Other metrics" in page
    assert "Accuracy gap" in page
    for shown in ("0.123", "0.012", "0.3"):
        assert shown in page


def test_page_shows_organisers_the_table(server: Instance, visitor: Visitor) -> None:
    submission = scored(server)
    compute(server, submission)
    visitor.log_in("of-digits")
    assert "<li>n: 1</li>" in visitor.get(f"/submissions/{submission}").text
