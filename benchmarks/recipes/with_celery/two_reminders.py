"""A cart gets a reminder after 15 minutes and a second one 15 minutes later. Then it is closed."""

from benchmarks.recipes.shop import prepare, seconds, transaction
from benchmarks.recipes.with_celery.app import app

STEP = seconds("REMIND_EVERY", 900)
WORDS = ("you left something in your cart", "the last one is reserved for 15 minutes more", "your cart is closed")


def leave(cart: int) -> None:
    remind.apply_async([cart], countdown=STEP)
    with transaction() as db:
        db.execute("insert into orders (number, state) values (?, 'cart')", [cart])


def check_out(cart: int) -> bool:
    with transaction() as db:
        return db.execute("update orders set state = 'paid' where number = ? and state = 'cart'", [cart]).rowcount == 1


@app.task(name="cart.remind")
def remind(cart: int, step: int = 0) -> None:
    with transaction() as db:
        if db.execute("select 1 from orders where number = ? and state = 'cart'", [cart]).fetchone() is None:
            return
        if step == len(WORDS) - 1:
            db.execute("update orders set state = 'closed' where number = ?", [cart])
        new = db.execute("insert or ignore into mails values (?)", [f"cart {cart} {step}"]).rowcount == 1
    if new:
        print(f"cart {cart}: {WORDS[step]}")
    if step < len(WORDS) - 1:  # if the worker dies before this line, the task comes again; the mail does not
        remind.apply_async([cart, step + 1], countdown=STEP)


if __name__ == "__main__":
    prepare()
    leave(1)
    leave(2)
    print("paid:", check_out(2))
