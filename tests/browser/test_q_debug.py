import re
import pytest
from tests.browser.test_questions import *
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]
for _n in [n for n in dir() if n.startswith("test_")]:
    globals().pop(_n)

def test_debug(start, sign_in):
    run, question = ask(start)
    page = sign_in(answerer("clara", is_staff=True), viewport=PHONE)
    page.on("request", lambda r: print("REQ", r.method, r.url) if r.is_navigation_request() else None)
    page.on("requestfailed", lambda r: print("FAILED", r.url, r.failure))
    page.goto("/admin/runs/question/")
    link = page.get_by_role("link", name=re.compile("The customer writes"))
    print("RECTS", link.evaluate("e => [...e.getClientRects()].map(r => [r.x,r.y,r.width,r.height])"))
    print("HIT", link.evaluate("e => { const r = e.getClientRects()[0]; return document.elementFromPoint(r.x + r.width/2, r.y + r.height/2).outerHTML.slice(0, 200) }"))
    link.click()
    print("AFTER", page.url)
    page.wait_for_timeout(3000)
    print("AFTER", page.url)
    open_question(page, question)
    page.get_by_role("link", name="Go to the answer ↓").focus()
    page.keyboard.press("Enter")
    for _ in range(25):
        page.keyboard.press("Tab")
        print("FOCUS", page.evaluate("() => document.activeElement.outerHTML.slice(0, 90)"), page.evaluate("() => document.querySelectorAll(':focus').length"))
    assert 0
