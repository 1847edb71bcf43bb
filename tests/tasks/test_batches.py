"""Tasks with `batch=`: what they are given, what is sent to them, and how they are handled in time travel."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

from bide import BadMessage, BadOption, Bury, ConfigError, Failed, ManualClock, Outgoing, Snooze, current_batch, steps
from bide.queue.tasks.outcome import failures

Do = Callable[[Any], Any]


@dataclass
class Like:
    post: int
    user: str = "nobody"


class Struct(msgspec.Struct):
    post: int
    user: str = "nobody"


class Model(pydantic.BaseModel):
    post: int
    user: str = "nobody"


class Typed(TypedDict):
    post: int


class Gathered:
    """What handlers were given."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []


@pytest.fixture
def seen() -> Gathered:
    return Gathered()


@pytest.mark.parametrize(
    ("hint", "item"),
    [
        (list[Like], Like(1, "ann")),
        (list[Struct], Struct(1, "ann")),
        (list[Model], Model(post=1, user="ann")),
        (list[Typed], {"post": 1}),
        (list[dict[str, int]], {"post": 1}),
        (list[int], 1),
        (list[str | None], None),
        (Sequence[int], 1),
        (Iterable[int], 1),
        (Collection[int], 1),
        (Annotated[list[int], "likes"], 1),
        (list, {"post": 1}),
        (Any, [1]),
    ],
    ids=str,
)
def test_an_item_is_made_by_the_type_of_the_list(queue: Any, do: Do, seen: Gathered, hint: Any, item: Any) -> None:
    def write(likes: Any) -> None:
        assert type(likes) is list
        seen.batches.append(likes)

    write.__annotations__["likes"] = hint
    task = queue.task("likes", batch=10)(write)
    do(task.send(item))
    do(task.send_many([item, item]))
    do(queue.testing.advance(0))
    assert seen.batches == [[item] * 3]
    assert type(seen.batches[0][0]) is type(item)


def test_a_message_is_one_item_whoever_sends_it(queue: Any, do: Do, seen: Gathered) -> None:
    @queue.task("likes", batch=10)
    def write(likes: list[Like]) -> None:
        seen.batches.append(likes)

    sent = do(write.after("1m", key="like:1").send(Like(1)))
    assert do(queue.get(sent)).body == {"post": 1, "user": "nobody"}
    do(queue.send("likes", {"post": 2}, delay="1m"))
    do(write.after("1m").send_many([Like(3), Like(4)]))
    do(queue.testing.advance("1m"))
    assert seen.batches == [[Like(1), Like(2), Like(3), Like(4)]]


def test_items_may_have_times_of_their_own(queue: Any, do: Do, clock: ManualClock) -> None:
    @queue.task("likes", batch=10)
    def write(likes: list[Like]) -> None: ...

    sent = do(write.after("1h").send_many([Like(1), Outgoing(Like(2), delay="5m")]))
    assert [each.due - clock.now_ms for each in sent] == [3_600_000, 300_000]
    assert [do(queue.get(each)).body["post"] for each in sent] == [1, 2]


def test_what_is_no_item_is_refused_when_it_is_sent(queue: Any, do: Do) -> None:
    @queue.task("likes", batch=10)
    def write(likes: list[Like]) -> None: ...

    with pytest.raises(BadMessage, match=r"can't take this message: Expected `int`, got `str` - at `\$\.post`"):
        do(write.send({"post": "one"}))
    with pytest.raises(BadMessage, match="Send one item; send_many takes a list of them"):
        do(write.send([Like(1)]))
    with pytest.raises(BadMessage, match=r"Item 1: .*Object missing required field `post` - at `\$`"):
        do(write.send_many([Like(1), {"user": "ann"}]))
    with pytest.raises(BadMessage, match=r"write.send\(…\) takes one item of the list"):
        write.definition.arguments.bind((), {"post": 1})
    with pytest.raises(BadOption, match=r"Give the items; for one message use send\(\)"):
        do(write.send_many({"post": 1}))
    with pytest.raises(BadOption, match="A key belongs to one message"):
        do(write.options(key="a").send_many([Like(1), Like(2)]))
    assert do(queue.stats()).pending == 0


@pytest.mark.parametrize(
    ("body", "elsewhere"),
    [
        ({"user": "ann"}, True),  # another release may give it a default
        ({"post": "one"}, False),
        ("one", False),
        (None, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("hint", [list[Like], list[Struct], list[Model]], ids=str)
def test_an_item_with_other_fields_may_be_for_another_release(
    queue: Any, do: Do, hint: Any, body: Any, elsewhere: bool
) -> None:
    def write(likes: Any) -> None: ...

    write.__annotations__["likes"] = hint
    queue.task("likes", batch=10, max_attempts=2)(write)
    do(queue.send("likes", body))
    handled = do(queue.testing.advance(0, raise_errors=False))
    assert [each.outcome for each in handled] == (["waits"] if elsewhere else ["dead"])


def no_parameter() -> None: ...
def two(likes: list[int], more: int) -> None: ...
def rest(likes: list[int], **more: int) -> None: ...
def default(likes: Sequence[int] = ()) -> None: ...
def one_item(like: Like) -> None: ...
def a_tuple(likes: tuple[int, ...]) -> None: ...


@pytest.mark.parametrize("function", [no_parameter, two, rest, default], ids=lambda each: str(each.__name__))
def test_a_function_that_takes_something_else_than_one_list_is_refused(queue: Any, function: Any) -> None:
    with pytest.raises(ConfigError, match="write it with one parameter, the list"):
        queue.task("likes", batch=10)(function)


@pytest.mark.parametrize(("function", "shown"), [(one_item, "like: list[Like]"), (a_tuple, "likes: list[")])
def test_a_parameter_of_another_type_is_refused_with_what_to_write(queue: Any, function: Any, shown: str) -> None:
    with pytest.raises(ConfigError) as refused:
        queue.task("likes", batch=10)(function)
    assert f"write {shown}" in str(refused.value)


def test_further_parameters_keep_their_defaults(queue: Any, do: Do, seen: Gathered) -> None:
    @queue.task("likes", batch=10)
    def write(likes: list[int], table: str = "likes") -> None:
        seen.batches.append([table, *likes])

    do(write.send(1))
    do(queue.testing.advance(0))
    assert seen.batches == [["likes", 1]]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"batch": 10_001}, "from 1 to 10,000"),
        ({"linger": "1s"}, "give batch= too"),
        ({"batch": 10, "lock": "like:{like}"}, "lock= holds back single messages"),
        ({"batch": 10, "concurrency": 1}, "concurrency= holds back single messages"),
        ({"batch": 10, "rate": "1/s", "per": "{user}"}, "per= holds back single messages"),
        ({"batch": 10, "unknown": "ignore"}, "unknown= is for arguments"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together_are_refused(queue: Any, options: Any, says: str) -> None:
    with pytest.raises(BadOption, match=says):
        queue.task("likes", **options)(lambda likes: None)


def test_a_schedule_sends_no_batches(queue: Any) -> None:
    def write(likes: list[int]) -> None: ...

    with pytest.raises(ConfigError, match="leave out batch="):
        queue.every("5m", topic="likes", batch=10)(write)
    task = queue.task("likes", batch=10)(write)
    with pytest.raises(ConfigError, match="leave out batch="):
        queue.every("5m")(task)


def test_calling_the_task_calls_the_function(queue: Any) -> None:
    @queue.task("likes", batch=10)
    def write(likes: list[int]) -> list[Failed]:
        return [Failed(like) for like in likes if like < 0]

    [failed] = write([1, -1])
    assert failed.item == -1
    assert "its handler says it failed" in repr(failed)


def test_the_task_of_the_twin_sends_too(queue: Any, do: Do) -> None:
    @queue.task("likes", batch=10)
    def write(likes: list[int]) -> None: ...

    assert "BatchTask" in repr(write.on(queue))
    do(write.on(queue).send(1))
    assert do(queue.stats("likes")).ready == 1


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_time_travel_gathers_what_is_due_at_the_same_time(queue: Any, do: Do, seen: Gathered, is_async: bool) -> None:
    def write(likes: list[int]) -> list[Failed]:
        seen.batches.append(list(likes))
        assert [each.body for each in current_batch()] == likes
        if 13 in likes:
            raise ValueError("an unlucky number")
        return [Failed(like, Snooze("1h")) for like in likes if like == 3]

    async def awrite(likes: list[int]) -> list[Failed]:
        return write(likes)

    queue.task("likes", batch=3, linger="1s", backoff=steps("1m"))(awrite if is_async else write)
    do(queue.send_many("likes", [1, 2, 3, 4]))
    do(queue.send_many("likes", [Outgoing(5, delay="1m"), Outgoing(13, delay="1m")]))
    handled = do(queue.testing.advance(0))
    assert seen.batches == [[1, 2, 3], [4]]
    assert [each.outcome for each in handled] == ["done", "done", "snoozed", "done"]
    with pytest.raises(ValueError, match="an unlucky number"):
        do(queue.testing.advance("10m"))
    assert seen.batches[2:] == [[5, 13], [5, 13], [5], [13]]
    [dead] = do(queue.messages("likes", state="dead"))
    assert dead.body == 13


def test_a_handler_ends_deliveries_in_time_travel(queue: Any, do: Do) -> None:
    @queue.task("likes", batch=3)
    def write(likes: list[int]) -> None:
        current_batch()[0].bury("by hand")

    do(queue.send_many("likes", [1, 2]))
    handled = do(queue.testing.advance(0))
    assert [each.outcome for each in handled] == ["ended", "done"]


def test_equal_items_all_fail_and_the_same_object_alone(queue: Any, do: Do) -> None:
    @queue.task("likes", batch=5)
    def write(likes: list[Like]) -> list[Failed]:
        return [Failed(likes[0], Bury("the first")), Failed(Like(2), Bury("both"))]

    do(queue.send_many("likes", [{"post": 1}, {"post": 1}, {"post": 2}, {"post": 2}]))
    handled = do(queue.testing.advance(0))
    assert [each.outcome for each in handled] == ["dead", "done", "dead", "dead"]


def test_failed_takes_an_error_or_a_text() -> None:
    with pytest.raises(BadOption, match="an exception or a text"):
        Failed(1, 5)  # type: ignore[arg-type]


def test_a_rate_holds_back_what_would_be_too_much(queue: Any, do: Do, seen: Gathered) -> None:
    @queue.task("sms", batch=10, rate="3/10s")
    def send(texts: list[int]) -> None:
        seen.batches.append(texts)

    do(send.send_many(range(7)))
    do(queue.testing.advance("1m"))
    assert seen.batches == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_an_answer_may_be_a_generator_and_an_error_of_it_is_the_handlers(queue: Any, do: Do, is_async: bool) -> None:
    def answer(likes: list[int]) -> Iterator[Failed]:
        for each, delivery in zip(likes, current_batch(), strict=True):
            assert each == delivery.body
            if each > 2:
                raise SystemExit(each)
            yield Failed(each, Bury("odd"))

    async def awrite(likes: list[int]) -> Iterator[Failed]:
        return answer(likes)

    def write(likes: list[int]) -> Iterator[Failed]:
        return answer(likes)

    queue.task("likes", batch=2, backoff=steps("1h"))(awrite if is_async else write)
    do(queue.send_many("likes", [1, 2, 2, 3]))
    handled = do(queue.testing.advance(0, raise_errors=False))
    assert [each.outcome for each in handled] == ["dead", "dead", "retry", "retry"]


class Compared:
    """Counts how often any two of it are compared."""

    times = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return isinstance(other, Compared) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)


@pytest.mark.parametrize("copied", [True, False], ids=["equal", "same"])
def test_what_failed_is_found_without_comparing_each_with_each(copied: bool) -> None:
    items = [Compared(number) for number in range(500)] * 2
    Compared.times = 0
    found = failures([Failed(Compared(each.number) if copied else each) for each in items], items, "write")
    assert sorted(found) == list(range(1_000))
    assert Compared.times <= 3 * len(items)


def test_items_without_a_hash_are_found_too() -> None:
    items = [[1], 1, {"a": 1}, [1], True]
    assert sorted(failures([Failed([1]), Failed({"a": 1}), Failed(1)], items, "write")) == [0, 1, 2, 3]
