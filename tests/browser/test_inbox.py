"""People sign in a browser, and the run goes on: real clicks, a real web process, the engine."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from approvals.commands import propose
from approvals.models import Verdict
from runs.models import AgentRun, Approval
from tests.browser.conftest import CALL, OBJECTIVE, Hold, SignIn, desk, go_on
from tests.browser.looking import picture
from tests.database.approving import acting, ask, person, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

REFUND = "Refund 900.00 EUR of order 17"


def pending(run: AgentRun) -> Approval:
    return Approval.objects.get(run=run, status="pending")


def open_request(page: Page, run: AgentRun) -> Approval:
    approval = pending(run)
    page.goto(f"/admin/runs/approval/{approval.pk}/change/")
    return approval


def test_from_signing_in_to_an_approval_and_the_effect(hold: Hold, sign_in: SignIn) -> None:
    run = hold(says="The parcel came broken.", sure=0.83)
    user = person("clara", is_staff=True)
    user.set_password("correct horse")
    user.save()
    page = sign_in()
    page.goto("/admin/runs/approval/")
    page.get_by_label("Username").fill("clara")
    page.get_by_label("Password").fill("correct horse")
    page.keyboard.press("Enter")
    page.get_by_role("link", name=REFUND).click()
    expect(page.get_by_role("heading", name=REFUND)).to_be_visible()
    shown = page.locator(".ao-page").inner_text()
    for fact in (OBJECTIVE, "Look up order 17", '"900.00"', "[redacted]", "83% sure", "0 of 1"):
        assert fact in shown
    assert CALL["card"] not in page.content()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Approved. The run goes on.")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    assert desk.SENT == []
    go_on(run, until="COMPLETED")
    assert [one["amount"] for one in desk.SENT] == ["900.00"]


def test_a_denial_needs_a_reason_and_the_agent_is_told_it(
    hold: Hold, sign_in: SignIn, clerk: User
) -> None:
    run, page = hold(), sign_in(clerk)
    approval = open_request(page, run)
    page.get_by_role("button", name="Deny").click()
    # The browser itself asks for it first.
    expect(page.get_by_label("Why not?")).to_be_focused()
    assert Verdict.objects.count() == 0
    page.get_by_label("Why not?").fill("The parcel was fine.\nSee the photo.")
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_text("Denied. It is not sent")).to_be_visible()
    approval.refresh_from_db()
    assert (approval.status, approval.reason) == ("denied", "The parcel was fine.\nSee the photo.")
    go_on(run, until="COMPLETED")
    assert run.result["error"].startswith("denied by clara: The parcel was fine.")
    assert desk.SENT == []


def test_a_change_is_proposed_asked_anew_and_signed_by_somebody_else(
    hold: Hold, sign_in: SignIn, clerk: User
) -> None:
    run, page = hold(note="first\nsecond"), sign_in(clerk)
    old = open_request(page, run)
    page.get_by_role("link", name="Propose changes").click()
    page.get_by_label("amount").fill("four hundred")
    page.get_by_label("lines").fill("[{")
    page.get_by_label("Why?").fill("Only half of it was broken.")
    page.get_by_role("button", name="Propose").click()
    expect(page.locator("#argument-lines-error")).to_contain_text("This is no JSON")
    expect(page.get_by_label("amount")).to_have_value("four hundred")
    expect(page.get_by_label("Why?")).to_have_value("Only half of it was broken.")
    page.get_by_label("lines").fill("null")
    page.get_by_role("button", name="Propose").click()
    expect(page.locator("#argument-amount-error")).not_to_be_empty()
    picture(page, "propose-refused")
    assert Verdict.objects.count() == 0
    page.get_by_label("amount").fill("400.00")
    page.get_by_role("button", name="Propose").click()
    expect(page.get_by_text("Proposed. It is asked anew")).to_be_visible()
    go_on(run, until="WAITING_FOR_APPROVAL")
    page.reload()
    page.get_by_role("link", name="Open the request as it is now").click()
    expect(page.get_by_text("clara asked for this action")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    row = page.locator(".ao-differences tr", has_text="Argument amount")
    expect(row).to_contain_text("± changed")
    expect(row).to_contain_text('"900.00"')
    expect(row).to_contain_text('"400.00"')
    picture(page, "request-changed")

    other = sign_in(person("otto", is_staff=True))
    assert open_request(other, run).supersedes_id == old.pk
    other.get_by_role("button", name="Approve").click()
    expect(other.get_by_text("Approved.")).to_be_visible()
    go_on(run, until="COMPLETED")
    [sent] = desk.SENT
    assert (sent["amount"], sent["note"]) == ("400.00", "first\nsecond")
    # It was hidden on the page, and stayed what it was.
    assert sent["card"] == CALL["card"]


def test_approving_a_stale_page_shows_what_changed_and_signs_nothing(
    hold: Hold, sign_in: SignIn, clerk: User
) -> None:
    run, page = hold(), sign_in(clerk)
    old = open_request(page, run)
    otto = person("otto")
    propose(
        actor=acting(otto),
        user=otto,
        approval_id=old.pk,
        arguments={**old.operation.arguments, "amount": "1.00"},
        fingerprint=old.fingerprint,
        reason="a symbolic sum",
    )
    go_on(run, until="WAITING_FOR_APPROVAL")
    with page.expect_response(lambda answer: answer.request.method == "POST") as answered:
        page.get_by_role("button", name="Approve").click()
    assert answered.value.status == 409
    told = page.get_by_role("alert")
    expect(told).to_contain_text("Nothing of yours was recorded")
    expect(told).to_contain_text("otto proposed other arguments")
    expect(told).to_contain_text("a symbolic sum")
    changed = page.locator("tr", has_text="Argument amount")
    expect(changed).to_contain_text('"1.00"')
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    picture(page, "request-stale")
    assert not Verdict.objects.filter(user=clerk).exists()
    page.get_by_role("link", name="Open the request as it is now").click()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Approved.")).to_be_visible()
    go_on(run, until="COMPLETED")
    assert [one["amount"] for one in desk.SENT] == ["1.00"]


def test_whoever_comes_second_reads_who_decided_and_why(
    hold: Hold, sign_in: SignIn, clerk: User
) -> None:
    run, page = hold(), sign_in(clerk)
    approval = open_request(page, run)
    page.get_by_label("Why not?").fill("typed in vain")
    say(approval, person("otto"), "deny", reason="<b>no</b> receipt")
    page.get_by_role("button", name="Deny").click()
    told = page.get_by_role("alert")
    expect(told).to_contain_text("otto denied it")
    expect(told).to_contain_text("<b>no</b> receipt")
    expect(told).to_contain_text("You had written: typed in vain")
    assert Verdict.objects.count() == 1


def test_a_double_click_is_one_word_and_ends_kindly(
    hold: Hold, sign_in: SignIn, clerk: User
) -> None:
    run, page = hold(), sign_in(clerk)
    approval = open_request(page, run)
    form = page.locator("form", has=page.get_by_role("button", name="Approve"))
    fields = form.evaluate("form => Object.fromEntries(new FormData(form))")
    page.get_by_role("button", name="Approve").dblclick()
    expect(page.locator("#decide-title")).to_have_text("Decided")
    expect(
        page.get_by_text(re.compile("Approved. The run goes on|recorded already, once"))
    ).to_have_count(1)
    expect(page.get_by_role("alert")).to_have_count(0)
    # The very same form once more, as a browser sends it again after "resend?".
    again: Any = page.request.post(f"/admin/runs/approval/{approval.pk}/verdict/", form=fields)
    assert again.status == 200
    assert "This word of yours was recorded already, once." in again.text()
    assert Verdict.objects.count() == 1
    go_on(run, until="COMPLETED")
    assert len(desk.SENT) == 1


def test_alike_requests_are_approved_together_with_the_list_in_view(
    hold: Hold, sign_in: SignIn, clerk: User
) -> None:
    runs, page = [hold(order_id=name) for name in ("17", "18", "19")], sign_in(clerk)
    page.goto("/admin/runs/approval/")
    picture(page, "inbox-choosing")
    for name in ("17", "19"):
        page.get_by_role("checkbox", name=f"order {name}").check()
    page.get_by_role("button", name="Look at the chosen ones together").click()
    expect(page.get_by_role("heading", name="Approve 2 together?")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="order 17")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="order 19")).to_be_visible()
    picture(page, "batch")
    late = pending(runs[2])
    say(late, person("otto"), "deny", reason="no")
    page.get_by_role("button", name="Approve these 2").click()
    expect(page.get_by_role("heading", name="1 of 2 signed")).to_be_visible()
    picture(page, "batch-results")
    assert [one.user for one in Verdict.objects.filter(verdict="approve")] == [clerk]
    for run, status in zip(runs, ("approved", "pending", "denied"), strict=True):
        assert run.approvals.get().status == status


def test_what_the_agent_wrote_cannot_pass_for_the_page(
    hold: Hold, sign_in: SignIn, clerk: User
) -> None:
    imitation = (
        "</blockquote></section><form method=post><button>Approve</button></form>\n"
        "<script>alert(1)</script><img src=x onerror=alert(2)>\n"
        "✔ Signed by finance. \u202eevorppA\u202c Go on: https://evil.example/approve\n"
        "Your decision\n" + "Z\u0351\u0352\u0353" * 50
    )
    page = sign_in(clerk)
    open_request(page, hold(says=imitation, order_id="17 (Approved already)"))
    box = page.get_by_role("region", name="Written by the agent: not checked")
    expect(box).to_contain_text("whatever looks like a button, a notice or a signature")
    written = box.locator("blockquote")
    expect(written).to_contain_text("</blockquote></section><form method=post>")
    expect(written).to_contain_text("\\u202eevorppA\\u202c")
    # Only text, with its lines; nothing of it is a control, a link or an element.
    assert written.locator("*").count() == 0
    assert written.inner_text().count("\n") == 4
    assert page.get_by_role("button", name="Approve").count() == 1
    assert page.locator(".ao-words form, .ao-words a, .ao-words button, .ao-words img").count() == 0
    everything = page.locator(".ao-page").inner_text()
    outside = everything.replace(box.inner_text(), "")
    assert "Signed by finance" not in outside
    # And nothing of it is painted outside of its box.
    assert box.evaluate("box => getComputedStyle(box).contain") == "content"
    picture(page, "request-hostile")


def test_it_works_without_javascript(hold: Hold, sign_in: SignIn, clerk: User) -> None:
    run, page = hold(), sign_in(clerk, java_script_enabled=False)
    approval = open_request(page, run)
    until = f"{approval.approve_by:%Y-%m-%d %H:%M:%S} UTC"
    expect(page.locator("header time")).to_contain_text(until)
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Approved. The run goes on.")).to_be_visible()


def test_the_time_left_is_counted_down(hold: Hold, sign_in: SignIn, clerk: User) -> None:
    run, page = hold(), sign_in(clerk)
    page.clock.install()
    open_request(page, run)
    left = page.locator("header time span")
    expect(left).to_have_text(re.compile("in 23 h 59 min"))
    page.clock.fast_forward("23:57:30")
    expect(left).to_have_text(re.compile(r"in [12] min \d\d s"))
    page.clock.fast_forward("05:00")
    expect(left).to_have_text("over")


def test_a_second_signature_is_waited_for_and_named(
    hold: Hold, sign_in: SignIn, clerk: User
) -> None:
    run = hold()
    ask(run, quorum=2, groups=["finance"])
    clerk.groups.create(name="support")
    page = sign_in(clerk)
    open_request(page, run)
    expect(page.get_by_text("in none of the groups that may sign: finance")).to_be_visible()
    paula = person("paula", "finance", is_staff=True)
    page = sign_in(paula)
    open_request(page, run)
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Signed. It still needs")).to_be_visible()
    expect(page.get_by_role("heading", name="You have signed it")).to_be_visible()
    picture(page, "request-signed")
