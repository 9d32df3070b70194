import pytest
from django.contrib.auth.models import User
from tests.database.admin_pages import person
from tests.database.every_row import fill
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]
def test_probe(start, sign_in):
    fill(start, 2)
    page = sign_in(person(superuser=True), viewport={"width":1366,"height":900})
    page.goto(f"/admin/auth/user/{User.objects.latest('pk').pk}/change/")
    print(page.evaluate("""() => [...document.querySelectorAll('body *')].filter(e=>e.getBoundingClientRect().right>innerWidth+1).map(e=>['U', e.tagName, e.className.toString().slice(0,90), e.id, Math.round(e.getBoundingClientRect().left), Math.round(e.getBoundingClientRect().width), getComputedStyle(e).minWidth].join(' ')).slice(0,25).join('\\n')"""))
    page.goto("/admin/runs/toolobservation/")
    print(page.evaluate("""() => ['O', innerWidth, ...[...document.querySelectorAll('th, .ao-scroll')].map(e=>e.textContent.slice(0,20).trim()+' '+Math.round(e.getBoundingClientRect().width)+' '+Math.round(e.getBoundingClientRect().right))].join('\\nO ')"""))
    page.screenshot(path="/tmp/shots/obs.png")
    assert 0
