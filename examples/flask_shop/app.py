"""The shop over HTTP. Run it with: flask --app examples.flask_shop.app run"""

from datetime import datetime
from typing import Any

from flask import Blueprint, Flask, abort, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from bide import RescheduleResult

from . import shop
from .tasks import PAY_WITHIN, REMIND_AFTER, cancel_unpaid, queue, remind, send_mail

orders = Blueprint("orders", __name__, url_prefix="/orders")


def create_app() -> Flask:
    queue.stats()  # opens the queue, which creates the shared file; the shop's tables must come after bide's
    shop.prepare()
    app = Flask(__name__)
    app.register_blueprint(orders)
    app.register_error_handler(HTTPException, _say_why)
    return app


@orders.post("")
def create() -> ResponseReturnValue:
    email = str(_body().get("email") or abort(400, "An order needs an email."))
    # The order and its two messages are committed in one transaction. So a crash or an error never leaves an order that is
    # not cancelled, or a cancellation without an order.
    with shop.transaction() as db:
        order = shop.add(db, email)
        sent = cancel_unpaid.after(PAY_WITHIN, key=str(order), connection=db).send(order)
        remind.after(REMIND_AFTER, key=str(order), connection=db).send(order)
    return {"order": order, "state": "open", "pay_by": _text(sent.due_at)}, 201


@orders.get("/<int:order>")
def show(order: int) -> dict[str, Any]:
    with shop.transaction() as db:
        found = _there(shop.find(db, order))
        mails = shop.mails(db, order)
    waiting = cancel_unpaid.get(key=str(order))
    pay_by = _text(waiting.due_at) if waiting and found.state == "open" else None
    return {"order": order, "state": found.state, "pay_by": pay_by, "mails": mails}


@orders.post("/<int:order>/pay")
def pay(order: int) -> dict[str, Any]:
    with shop.transaction() as db:
        if shop.pay(db, order):
            send_mail.options(connection=db).send(order, "receipt")
        found = _there(shop.find(db, order))
    if found.state == "cancelled":
        abort(409, "Too late: the order was cancelled, as it was not paid in time. You are not charged.")
    # Cancel after the commit: inside the transaction, the queue would wait for our own lock. If this process dies in
    # between, the cancellation checks the order and does nothing.
    # CANCELLED: paid in time. RUNNING: the cancellation runs now, and will see that the order is paid.
    # GONE: there is no cancellation any more, for example because the order is paid twice.
    cancellation = cancel_unpaid.cancel(key=str(order))
    reminder = remind.cancel(key=str(order))
    return {"order": order, "state": "paid", "cancellation": cancellation.value, "reminder": reminder.value}


@orders.post("/<int:order>/more-time")
def more_time(order: int) -> dict[str, Any]:
    before = show(order)
    moved = cancel_unpaid.reschedule(key=str(order), delay=PAY_WITHIN)
    if moved is RescheduleResult.RUNNING:
        abort(409, "Too late: the order is being cancelled at this moment.")
    if moved is RescheduleResult.GONE:
        abort(409, f"There is nothing to put off: the order is {before['state']}.")
    reminder = remind.reschedule(key=str(order), delay=REMIND_AFTER)  # GONE: the reminder was sent already
    return {**show(order), "cancellation": moved.value, "reminder": reminder.value}


def _say_why(error: HTTPException) -> ResponseReturnValue:
    return {"detail": error.description}, error.code or 500


def _body() -> dict[str, Any]:
    body = request.get_json(silent=True)
    return body if isinstance(body, dict) else {}


def _there(order: shop.Order | None) -> shop.Order:
    return order or abort(404, "There is no such order.")


def _text(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds")
