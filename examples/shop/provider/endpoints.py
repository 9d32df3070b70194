"""The paths of the provider.

    GET    /orders/{id}                 one order
    POST   /refunds                     {order, amount, operation_id} + Idempotency-Key
    GET    /refunds?operation_id=       the refunds of an operation (all without it)
    GET    /refunds?since=&until=       those made in this span, ISO 8601 with an offset

    POST   /bookings/{book}             see `books`; /bookings/{book}/back takes it back
    GET    /bookings?operation_id=      the bookings of an operation (all without it)

    GET    /ledger                      every effect, the count per operation, every request
    POST   /faults                      {kind, path, method, times, seconds, delay, ...}
    GET    /faults    DELETE /faults
    GET    /wait?count=&path=&method=&timeout=   until so many requests have arrived
    GET    /wait?held=&timeout=                  until so many requests are held at once
    GET    /wait?landed=1&timeout=               until no late request is under way
    POST   /release                     lets held requests go on
    POST   /forget                      forgets every key, as at the end of its retention
    GET    /health

Guarantees: a request for orders, refunds or bookings is in the ledger before anything else is
done with it. The paths of the second group meet no faults and leave no trace in the ledger.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from urllib.parse import urlencode

from examples.shop.provider.acting import Action, Stage
from examples.shop.provider.books import Books, Wanted, read_booking
from examples.shop.provider.errors import (
    InvalidField,
    MethodNotAllowed,
    NothingHappened,
    RequestError,
    UnknownOrder,
    UnknownPath,
)
from examples.shop.provider.faults import (
    BUSINESS_PATHS,
    Fault,
    FaultKind,
    FaultPlan,
    read_fault,
)
from examples.shop.provider.ledger import Ledger
from examples.shop.provider.refunds import ORDERS, Keys, Refund, Refunds, read_refund
from examples.shop.provider.wire import (
    Answer,
    Hangup,
    Reply,
    Request,
    refuse_unknown,
    take_count,
    take_moment,
    take_number,
)

MOST_WAIT_SECONDS = 120.0
MOST_NOTED = 300


class Endpoints:
    def __init__(self, *, ledger: Ledger, honours_keys: bool) -> None:
        self._ledger = ledger
        self._honours_keys = honours_keys
        keys = Keys(are_honoured=honours_keys)
        self._refunds = Refunds(ledger=ledger, keys=keys)
        self._books = Books(ledger=ledger, keys=keys)
        self._faults = FaultPlan()
        self._stage = Stage()

    def reply(self, request: Request) -> Reply:
        if f"{request.path}/".startswith(tuple(f"{known}/" for known in BUSINESS_PATHS)):
            return self._reply_noted(request)
        return self._reply_to_operator(request)

    # -- Orders, refunds and bookings -----------------------------------------

    def _reply_noted(self, request: Request) -> Reply:
        number = self._ledger.note_request(
            method=request.method,
            path=_bound(request.path),
            query=_bound(urlencode(request.query)),
            key=None if request.key is None else _bound(request.key),
            fence_token=None if request.fence_token is None else _bound(request.fence_token),
        )
        fault = self._faults.take(method=request.method, path=request.path)
        reply: Reply
        try:
            reply = self._stage.reply(self._find_action(request, fault), fault)
        except RequestError as error:
            reply = Answer.to_error(error)
        match reply:
            case Hangup():
                outcome, status = "closed", None
            case Answer(replayed=replayed, status=status):
                outcome = "replayed" if replayed else "answered"
        self._ledger.note_answer(
            number, outcome=outcome, status=status, fault=None if fault is None else fault.kind
        )
        return reply

    def _find_action(self, request: Request, fault: Fault | None) -> Action:
        if request.path == "/refunds":
            if request.method == "POST":
                return _PlaceRefund(self._refunds, read_refund(request))
            _allow(request, "GET", "POST")
            refuse_unknown(request.query, known=("operation_id", "since", "until"))
            operation_id = request.query.get("operation_id")
            since, until = take_moment(request.query, "since"), take_moment(request.query, "until")
            behind = fault.seconds if fault and fault.kind is FaultKind.LAG else 0.0
            first = 1 if fault and fault.kind is FaultKind.FIRST_PAGE else None
            return _LookUp(
                lambda: self._refunds.find(
                    operation_id, since=since, until=until, behind=behind, first=first
                )
            )
        if request.path == "/bookings":
            _allow(request, "GET")
            refuse_unknown(request.query, known=("operation_id",))
            return _LookUp(lambda: self._books.find(request.query.get("operation_id")))
        if request.path.startswith("/bookings/"):
            _allow(request, "POST")
            return _Book(self._books, read_booking(request))
        _, _, order_id = request.path.removeprefix("/").partition("/")
        if not request.path.startswith("/orders/") or not order_id:
            raise UnknownPath(request.path)
        _allow(request, "GET")
        return _LookUp(lambda: _find_order(order_id))

    # -- For whoever runs the provider ----------------------------------------

    def _reply_to_operator(self, request: Request) -> Answer:
        match request.method, request.path:
            case "GET", "/health":
                return Answer.of(200, {"status": "ok", "pid": os.getpid()})
            case "GET", "/ledger":
                return self._show_ledger()
            case "GET", "/faults":
                return Answer.of(200, self._faults.as_json())
            case "POST", "/faults":
                self._faults.add(read_fault(request.body))
                return Answer.of(201, self._faults.as_json())
            case "DELETE", "/faults":
                self._faults.clear()
                return Answer.of(200, [])
            case "GET", "/wait":
                return self._wait(request)
            case "POST", "/release":
                return Answer.of(200, {"released": self._stage.release()})
            case "POST", "/forget":
                return Answer.of(200, {"forgotten": self._refunds.forget_keys()})
            case _, "/health" | "/ledger" | "/wait":
                _allow(request, "GET")
            case _, "/faults":
                _allow(request, "GET", "POST", "DELETE")
            case _, "/release" | "/forget":
                _allow(request, "POST")
        raise UnknownPath(request.path)

    def _show_ledger(self) -> Answer:
        effects = self._ledger.effects()
        return Answer.of(
            200,
            {
                "honours_keys": self._honours_keys,
                "effects": [asdict(effect) for effect in effects],
                "bookings": [asdict(booking) for booking in self._ledger.bookings()],
                "counts": Counter(effect.operation_id for effect in effects),
                "requests": [asdict(request) for request in self._ledger.requests()],
                "held": self._stage.held,
                "late": self._stage.late,
            },
        )

    def _wait(self, request: Request) -> Answer:
        query = request.query
        refuse_unknown(query, known=("count", "path", "method", "held", "landed", "timeout"))
        seconds = take_number(query, "timeout", default=10.0, least=0.0, most=MOST_WAIT_SECONDS)
        if "landed" in query:
            awaited = "the landing of late requests"
            happened = self._stage.wait_until_landed(seconds=seconds)
        elif "held" in query:
            count = take_count(query, "held", default=1, most=10_000)
            awaited = f"the arrival of {count} held requests"
            happened = self._stage.wait_until_held(count=count, seconds=seconds)
        else:
            count = take_count(query, "count", default=1, most=1_000_000)
            path, method = query.get("path", "/refunds"), query.get("method")
            if method not in (None, "GET", "POST"):
                raise InvalidField("method", method, "give GET or POST")
            awaited = f"the arrival of {count} requests"
            happened = self._ledger.wait_for_requests(
                count=count, path=path, method=method, seconds=seconds
            )
        if not happened:
            raise NothingHappened(awaited, seconds)
        return Answer.of(200, {"happened": True})


class _PlaceRefund:
    def __init__(self, refunds: Refunds, refund: Refund) -> None:
        self._refunds = refunds
        self._refund = refund

    @contextmanager
    def claim(self) -> Iterator[bool]:
        with self._refunds.claim(self._refund) as free:
            yield free

    def perform(self, *, instead: Answer | None = None, moves_money: bool = True) -> Answer:
        return self._refunds.perform(self._refund, instead=instead, moves_money=moves_money)


class _Book:
    def __init__(self, books: Books, wanted: Wanted) -> None:
        self._books = books
        self._wanted = wanted

    @contextmanager
    def claim(self) -> Iterator[bool]:
        with self._books.claim(self._wanted) as free:
            yield free

    def perform(self, *, instead: Answer | None = None, moves_money: bool = True) -> Answer:
        return self._books.perform(self._wanted, instead=instead, moves_money=moves_money)


class _LookUp:
    def __init__(self, look: Callable[[], Answer]) -> None:
        self._look = look

    @contextmanager
    def claim(self) -> Iterator[bool]:
        yield True

    def perform(self, *, instead: Answer | None = None, moves_money: bool = True) -> Answer:
        return instead or self._look()


def _find_order(order_id: str) -> Answer:
    if order_id not in ORDERS:
        raise UnknownOrder(order_id)
    return Answer.of(200, ORDERS[order_id].as_json())


def _allow(request: Request, *methods: str) -> None:
    if request.method not in methods:
        raise MethodNotAllowed(request.method, request.path, methods)


def _bound(text: str) -> str:
    return text[:MOST_NOTED]
