"""People answer what an agent asks: real clicks, a real web process, the engine."""

import re
from datetime import date, timedelta
from typing import Any, Final, Literal

import pytest
from playwright.sync_api import Page, expect
from pydantic import BaseModel, Field

from runs import Ask, Context, Decision, Finish
from runs.models import AgentRun, Question
from tests.browser.conftest import SignIn, go_on
from tests.browser.looking import PHONE, look, picture, shows_focus, too_wide
from tests.database.asking import Start, answerer, end, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

LONG = "A_very_long_word_without_any_place_to_break_it_" * 4
TEXT = f"The customer writes that “the parcel” came broken.\n\nWhich one was it?\n{LONG}"


class Address(BaseModel):
    street: str
    town: str


class Parcel(BaseModel):
    number: str = Field(title="Number of the parcel", max_length=40, description=f"As {LONG}.")
    broken: bool = Field(title="Was it broken?")
    kind: Literal["letter", "parcel", "pallet"] = Field("parcel", title="What was it?")
    carrier: Literal["a", "b", "c", "d", "e", "f", "g", "h", LONG] | None = None
    damages: list[Literal["box", "glass", "water"]] = Field([], title="What is damaged?")
    came_on: date | None = Field(None, title="When did it come?")
    kilograms: float = Field(title="Weight in kg", gt=0)
    notes: str = Field("", title="Anything else?")
    address: Address | None = None


ANSWER = {
    "number": "p-17",
    "broken": True,
    "kind": "pallet",
    "damages": ["box", "water"],
    "came_on": "2026-11-28",
    "kilograms": 2.5,
    "notes": "first\nsecond",
}


_LABEL: Final = "element => (element.labels?.[0] ?? element).textContent.trim()"


def ask(start: Start, **options: Any) -> tuple[AgentRun, Question]:
    def decide(context: Context) -> Decision:
        if context.last is None:
            return Ask(options.pop("text", TEXT), Parcel, timeout=timedelta(hours=24), **options)
        return Finish([context.last.result, context.last.author])

    run = go_on(start(decider=decide), until="WAITING")
    return run, Question.objects.get(run=run)


def open_question(page: Page, question: Question) -> None:
    page.goto(f"/admin/runs/question/{question.pk}/change/")


def fill_in(page: Page) -> None:
    page.get_by_label("Number of the parcel").fill("p-17")
    page.get_by_role("group", name="Was it broken?").get_by_label("Yes").check()
    page.get_by_role("group", name="What was it?").get_by_label("pallet").check()
    for words in ("box", "water"):
        page.get_by_role("checkbox", name=words).check()
    page.get_by_label("When did it come?").fill("2026-11-28")
    page.get_by_label("Weight in kg").fill("2.5")
    page.get_by_label("Anything else?").fill("first\nsecond")


def test_a_person_answers_on_a_phone_and_the_run_goes_on(start: Start, sign_in: SignIn) -> None:
    run, question = ask(start)
    page = sign_in(answerer("clara", is_staff=True), viewport=PHONE)
    page.goto("/admin/runs/question/")
    picture(page, "phone-questions")
    page.get_by_role("link", name=re.compile("The customer writes")).click()
    expect(page.get_by_role("heading", name="A question of")).to_be_visible()
    box = page.get_by_role("region", name="Written by the agent: not checked")
    expect(box).to_contain_text("Which one was it?")
    expect(page.locator("header time")).to_contain_text("UTC")
    picture(page, "phone-question")
    assert too_wide(page) == []
    fill_in(page)
    # Nothing is lost of what was typed where something does not fit.
    page.get_by_label("Weight in kg").fill("two")
    page.get_by_role("button", name="Answer").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was recorded yet")
    expect(page.locator(".ao-field", has_text="Weight in kg")).to_contain_text("Write a number")
    expect(page.get_by_label("Anything else?")).to_have_value("first\nsecond")
    expect(page.get_by_label("When did it come?")).to_have_value("2026-11-28")
    expect(page.get_by_role("checkbox", name="water")).to_be_checked()
    picture(page, "phone-question-refused")
    assert too_wide(page) == []
    assert Question.objects.get(pk=question.pk).status == "open"
    page.get_by_label("Weight in kg").fill("2.5")
    page.get_by_role("button", name="Answer").click()
    expect(page.get_by_text("Answered. The run goes on with it.")).to_be_visible()
    expect(page.get_by_text("clara answered it")).to_be_visible()
    expect(page.get_by_role("button", name="Answer")).to_have_count(0)
    picture(page, "phone-question-answered")
    assert too_wide(page) == []
    go_on(run, until="COMPLETED")
    assert run.result == [ANSWER, "clara"]


def test_pages_of_questions_can_be_read_by_day_and_by_night(start: Start, sign_in: SignIn) -> None:
    (_, first), (_, second), (_, third) = ask(start), ask(start, groups=[LONG[:60]]), ask(start)
    page = sign_in(answerer("clara", is_staff=True))

    def refuse() -> None:
        open_question(page, first)
        page.locator("form.ao-answer").evaluate("form => { form.noValidate = true }")
        page.get_by_role("button", name="Answer").click()
        expect(page.get_by_role("alert")).to_be_visible()

    def come_second() -> None:
        open_question(page, third)
        fill_in(page)
        say(third, answerer(), {"number": LONG[:30], "broken": False, "kilograms": 1})
        page.get_by_role("button", name="Answer").click()
        expect(page.get_by_role("alert")).to_contain_text("You had written: ")

    stations = {
        "questions": lambda: page.goto("/admin/runs/question/?show=open"),
        "question": lambda: open_question(page, first),
        "question-refused": refuse,
        "question-of-others": lambda: open_question(page, second),
        "question-second": come_second,
        "questions-all": lambda: page.goto("/admin/runs/question/?show=all"),
    }
    for name, go in stations.items():
        go()
        look(page, name)


def test_a_question_is_answered_with_the_keyboard_alone(start: Start, sign_in: SignIn) -> None:
    run, question = ask(start)
    page = sign_in(answerer("clara", is_staff=True))
    open_question(page, question)
    page.get_by_role("link", name="Go to the answer ↓").focus()
    page.keyboard.press("Enter")
    keys = {"Number of the parcel": "p-17", "Yes": " ", "box": " ", "Weight in kg": "2.5"}
    for _ in range(40):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        if focused.count() == 0:
            # The button of a date's own calendar, which belongs to the browser.
            continue
        assert shows_focus(focused)
        said: str = focused.evaluate(_LABEL)
        if said == "Answer":
            break
        found = [typed for words, typed in keys.items() if said.startswith(words)]
        page.keyboard.type("".join(found))
        keys = {words: typed for words, typed in keys.items() if not said.startswith(words)}
    assert keys == {}
    page.keyboard.press("Enter")
    expect(page.get_by_text("Answered. The run goes on with it.")).to_be_visible()
    go_on(run, until="COMPLETED")
    wanted = {"number": "p-17", "broken": True, "damages": ["box"], "kilograms": 2.5}
    assert run.result[0] | wanted == run.result[0]


def test_what_the_agent_wrote_cannot_pass_for_the_page(start: Start, sign_in: SignIn) -> None:
    imitation = (
        "</blockquote></section><form method=post><button>Answer</button></form>\n"
        "<script>alert(1)</script><img src=x onerror=alert(2)>\n\u202eevorppA\u202c"
    )
    _, question = ask(start, text=imitation)
    page = sign_in(answerer("clara", is_staff=True))
    open_question(page, question)
    box = page.get_by_role("region", name="Written by the agent: not checked")
    written = box.locator("blockquote")
    expect(written).to_contain_text("</blockquote></section><form method=post>")
    expect(written).to_contain_text("\\u202eevorppA\\u202c")
    assert written.locator("*").count() == 0
    assert page.get_by_role("button", name="Answer").count() == 1
    assert box.evaluate("box => getComputedStyle(box).contain") == "content"


def test_it_works_without_javascript_and_a_question_that_ended_says_so(
    start: Start, sign_in: SignIn
) -> None:
    (run, first), (_, second) = ask(start), ask(start)
    page = sign_in(answerer("clara", is_staff=True), java_script_enabled=False)
    open_question(page, first)
    fill_in(page)
    page.get_by_role("button", name="Answer").click()
    expect(page.get_by_text("Answered. The run goes on with it.")).to_be_visible()
    go_on(run, until="COMPLETED")
    end(second, "cancelled")
    open_question(page, second)
    expect(page.get_by_text("Its run stopped waiting for it")).to_be_visible()
