"""Cancel and reschedule: by id and by key, of messages in every state."""

from typing import Any

import pytest
from msgspec.structs import replace

from bide.engines.base import Condition, Move, NewMessage, Ref, Seen, Swept
from bide.errors import BadTime
from bide.testing.contract.bench import LEASE, Bench, bodies, needs
from bide.types import CancelResult, RescheduleResult


async def ended(bench: Bench) -> list[str]:
    """The ids of messages that have ended in every way, and one that never existed."""
    done = await bench.running("mail")
    await bench.end(done, "done")
    cancelled = await bench.put("mail")
    await bench.cancel(id=cancelled.id)
    expired = await bench.put("mail", expires_in=1_000)
    bench.move(1_000)
    return [done.id, cancelled.id, expired.id, "no such id"]


def spelled_otherwise(id: str) -> set[str]:
    """Texts that are almost this id."""
    whole = {
        id.swapcase(),
        id.upper(),
        id.lower(),
        f" {id}",
        f"{id} ",
        f"{id}\n",
        f"{id}=",
        f"0{id}",
        f"{id}0",
        id[1:],
        id[:-1],
    }
    near = {id[:place] + char + id[place + 1 :] for place in range(len(id)) for char in "09afAFzZ+-_ =.\u0663"}
    return whole | near


class Moving:
    @needs("cancel")
    async def test_a_cancelled_message_is_never_handed_out(self, bench: Bench) -> None:
        ready, later = await bench.put_all(NewMessage("mail", b"ready"), NewMessage("mail", b"later", delay=5_000))
        stays = await bench.put("mail", b"stays", delay=5_000)
        results = await bench.engine.cancel([Ref(id=later.id), Ref(id=ready.id), Ref(id=later.id)], now=bench.now)
        assert results == [CancelResult.CANCELLED, CancelResult.CANCELLED, CancelResult.GONE]
        if bench.can.inspect:
            assert [each.id for each in await bench.stored("mail")] == [stays.id]
        assert await bench.claim("mail", limit=5) == []
        bench.move(5_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"stays"]

    @needs("cancel", "keys")
    async def test_cancel_by_key_is_cancel_by_id(self, bench: Bench) -> None:
        twice = await bench.put("mail", delay=5_000, key="twice")
        named_twice = [Ref(id=twice.id), Ref(topic="mail", key="twice")]
        for refs in (named_twice, named_twice[::-1]):
            moves = [Move(ref, 1_000 * place) for place, ref in enumerate(refs, 1)]
            assert await bench.engine.reschedule(moves, now=bench.now) == [RescheduleResult.MOVED] * 2
            if bench.can.lookup:
                assert (await bench.find(id=twice.id)).due == bench.now + 2_000
        assert await bench.engine.cancel(named_twice, now=bench.now) == [CancelResult.CANCELLED, CancelResult.GONE]
        sent = await bench.put("mail", delay=5_000, key="k")
        other = await bench.put("news", delay=5_000, key="k")
        assert await bench.cancel(topic="mail", key="unknown") is CancelResult.GONE
        assert await bench.cancel(topic="mail", key="k") is CancelResult.CANCELLED
        assert await bench.cancel(topic="mail", key="k") is CancelResult.GONE
        assert await bench.cancel(id=sent.id) is CancelResult.GONE
        # And in the reverse order
        assert await bench.cancel(id=other.id) is CancelResult.CANCELLED
        assert await bench.cancel(topic="news", key="k") is CancelResult.GONE
        # Then only the running message is left
        running = await bench.running("mail", key="k")
        assert await bench.cancel(topic="mail", key="k") is CancelResult.RUNNING
        assert await bench.end(running, "done") == "done"
        bench.move(5_000)
        assert await bench.claim("mail", "news", limit=5) == []

    @needs("cancel")
    async def test_cancelling_a_running_message_leaves_it_running(self, bench: Bench) -> None:
        held = await bench.running("mail", max_attempts=5)
        assert await bench.cancel(id=held.id) is CancelResult.RUNNING
        if bench.can.extend:
            assert await bench.extend(held, LEASE)
        # Then it comes back and ends as usual
        assert await bench.end(held, "retry") == "scheduled"
        [again] = await bench.claim("mail", limit=5)
        assert await bench.cancel(id=again.id) is CancelResult.RUNNING
        assert await bench.end(again, "done") == "done"

    @needs("cancel")
    async def test_cancelling_what_has_ended_says_gone(self, bench: Bench) -> None:
        for id in await ended(bench):
            assert await bench.cancel(id=id) is CancelResult.GONE

    @needs("cancel")
    async def test_messages_that_were_seen_end_together_or_not_at_all(self, bench: Bench) -> None:
        most = min(3, bench.engine.capabilities.together)
        sent = [await bench.put("mail", b"%d" % number, delay=5_000 * (number % 2)) for number in range(most)]
        gone, running = await bench.put("mail"), await bench.running("news")
        await bench.cancel(id=gone.id)
        for other, says in ((gone.id, CancelResult.GONE), (running.id, CancelResult.RUNNING)):
            refs = [*(Ref(id=each.id) for each in sent[1:]), Ref(id=other)]
            seen = [*(Seen(each.due) for each in sent[1:]), Seen(gone.due)]
            assert await bench.engine.cancel(refs, seen=seen, now=bench.now) == [*[CancelResult.CANCELLED] * (most - 1), says]
        refs, seen = [Ref(id=each.id) for each in sent], [Seen(each.due) for each in sent]
        assert await bench.engine.cancel(refs, seen=seen, now=bench.now) == [CancelResult.CANCELLED] * most
        assert await bench.engine.cancel(refs, seen=seen, now=bench.now) == [CancelResult.GONE] * most
        bench.move(5_000)
        assert await bench.claim("mail", limit=5) == []

    @needs("cancel")
    async def test_a_message_that_has_changed_since_it_was_seen_does_not_end(self, bench: Bench) -> None:
        large = b"x" * 100_000
        for body, other in ((b"", b"y"), (b"123:", b"23:"), (large, large[:-1])):
            sent = await bench.put("mail", body, delay=5_000)
            ref = Ref(id=sent.id)
            for seen in (Seen(sent.due + 1), Seen(sent.due - 1, body), Seen(sent.due, other), Seen(sent.due, body + b"y")):
                assert await bench.engine.cancel([ref], seen=[seen], now=bench.now) == [CancelResult.GONE]
            await bench.engine.reschedule([Move(ref, delay=6_000)], now=bench.now)
            assert await bench.engine.cancel([ref], seen=[Seen(sent.due, body)], now=bench.now) == [CancelResult.GONE]
            seen = Seen(bench.now + 6_000, body)
            assert await bench.engine.cancel([ref], seen=[seen], now=bench.now) == [CancelResult.CANCELLED]
        if bench.can.keys:
            sent = await bench.put("mail", b'["a"]', delay=5_000, key="k")
            await bench.put("mail", b'["b"]', delay=5_000, key="k", if_exists="merge")
            assert await bench.engine.cancel([Ref(id=sent.id)], seen=[Seen(sent.due, b'["a"]')], now=bench.now) == [
                CancelResult.GONE
            ]
            now = Seen(sent.due, b'["a","b"]')
            assert await bench.engine.cancel([Ref(id=sent.id)], seen=[now], now=bench.now) == [CancelResult.CANCELLED]
        expired = await bench.put("mail", delay=1_000, expires_in=1_000)
        bench.move(2_000)
        assert await bench.engine.cancel([Ref(id=expired.id)], seen=[Seen(expired.due)], now=bench.now) == [CancelResult.GONE]
        bench.move(5_000)
        assert await bench.claim("mail", limit=5) == []

    @needs("cancel")
    async def test_a_message_that_has_another_time_than_was_seen_is_left_alone(self, bench: Bench) -> None:
        same, other = await bench.put_all(NewMessage("mail", b"same", delay=5_000), NewMessage("mail", b"other", delay=5_000))
        running, dead = await bench.running("news"), await bench.bury("old")
        moves = [
            Move(Ref(id=other.id), 9_000, seen=other.due - 1),
            Move(Ref(id="no such id"), 9_000, seen=0),
            Move(Ref(id=same.id), 1_000, origin="due", seen=same.due),
            Move(Ref(id=running.id), 9_000, seen=running.due),
            Move(Ref(id=dead.id), 9_000, seen=0),
        ]
        gone, moved = RescheduleResult.GONE, RescheduleResult.MOVED
        assert await bench.engine.reschedule(moves, now=bench.now) == [
            gone, gone, moved, RescheduleResult.RUNNING, RescheduleResult.DEAD,
        ]  # fmt: skip
        assert await bench.engine.reschedule(moves[2:3], now=bench.now) == [gone]
        moves = [Move(Ref(id=same.id), at=same.due + 2_000, seen=same.due + 1_000)]
        assert await bench.engine.reschedule(moves, now=bench.now) == [moved]
        bench.move(5_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"other"]
        bench.move(2_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"same"]

    @needs("cancel")
    async def test_nothing_is_rescheduled_unless_the_condition_holds(self, bench: Bench) -> None:
        if bench.can.together == 1:
            return
        note, sent = await bench.put("notes", delay=50_000), await bench.put("mail", delay=5_000)
        running, dead = await bench.running("news"), await bench.bury("old")
        expired = await bench.put("notes", delay=1_000, expires_in=1_000)
        bench.move(2_000)
        move = Move(Ref(id=sent.id), 1_000)
        fail = [Condition(expired.id, expired.due), Condition(note.id, note.due - 1), Condition(running.id, running.due)]
        for condition in (*fail, Condition(dead.id, bench.now), Condition("no such id", note.due)):
            says = await bench.engine.reschedule([move], condition=condition, now=bench.now)
            assert says == [RescheduleResult.GONE]
        holds = Condition(note.id, note.due)
        several = [replace(move, seen=sent.due), Move(Ref(id=note.id), 1_000, origin="due")]
        assert await bench.engine.reschedule(several, condition=holds, now=bench.now) == [RescheduleResult.MOVED] * 2
        assert await bench.engine.reschedule([move], condition=holds, now=bench.now) == [RescheduleResult.GONE]
        assert await bench.cancel(id=note.id) is CancelResult.CANCELLED
        holds = Condition(note.id, note.due + 1_000)
        assert await bench.engine.reschedule([move], condition=holds, now=bench.now) == [RescheduleResult.GONE]
        bench.move(1_000)
        assert [each.id for each in await bench.claim("mail", limit=5)] == [sent.id]

    @needs("cancel")
    async def test_an_id_that_is_spelled_otherwise_names_no_message(self, bench: Bench) -> None:
        pending, dead = await bench.put("mail", delay=5_000), await bench.bury("news")
        for id in (pending.id, dead.id):
            refs = [Ref(id=text) for text in sorted(spelled_otherwise(id) - {pending.id, dead.id})]
            assert set(await bench.engine.cancel(refs, now=bench.now)) == {CancelResult.GONE}
            assert set(await bench.engine.reschedule([Move(each) for each in refs], now=bench.now)) == {RescheduleResult.GONE}
            if bench.can.lookup:
                assert set(await bench.engine.get(refs, now=bench.now)) == {None}
            if bench.can.dead:
                assert await bench.engine.requeue("news", [each.id or "" for each in refs], now=bench.now) == Swept(0, False)
        bench.move(5_000)
        assert [each.id for each in await bench.claim("mail", "news", limit=5)] == [pending.id]

    @needs("cancel")
    async def test_cancelling_a_dead_letter_says_dead_and_leaves_it(self, bench: Bench) -> None:
        key: dict[str, Any] = {"key": "k"} if bench.can.keys else {}
        dead = await bench.bury("mail", b"body", expires_in=1_000, **key)
        pending = await bench.put("mail", delay=5_000)
        bench.move(1_000)
        # When it is cancelled twice in one batch with others
        refs = [Ref(id=dead.id), Ref(id=pending.id), Ref(id=dead.id), Ref(id="no such id")]
        assert await bench.engine.cancel(refs, now=bench.now) == [
            CancelResult.DEAD, CancelResult.CANCELLED, CancelResult.DEAD, CancelResult.GONE,
        ]  # fmt: skip
        # Then its key is free, as for every dead letter, and it is still there
        if bench.can.keys:
            assert await bench.cancel(topic="mail", key="k") is CancelResult.GONE
        if bench.can.dead:
            [stored] = await bench.stored("mail", "dead")
            assert (stored.id, stored.state, stored.body, stored.last_error) == (dead.id, "dead", b"body", "no use")
            assert (await bench.engine.requeue("mail", now=bench.now)).count == 1
            assert await bench.cancel(id=dead.id) is CancelResult.CANCELLED
        assert await bench.claim("mail", limit=5) == []

    @needs("cancel")
    async def test_a_rescheduled_message_is_due_at_its_new_time_only(self, bench: Bench) -> None:
        sooner = await bench.put("mail", b"sooner", delay=9_000)
        later = await bench.put("mail", b"later", delay=4_000)
        ready = await bench.put("mail", b"ready")
        past = await bench.put("mail", b"past", delay=9_000)
        moves = [
            Move(Ref(id=sooner.id), delay=2_000),
            Move(Ref(id=later.id), at=bench.now + 6_000),
            Move(Ref(id=ready.id), delay=7_000),
            Move(Ref(id=past.id), at=bench.now - 5_000),
        ]
        assert await bench.engine.reschedule(moves, now=bench.now) == [RescheduleResult.MOVED] * 4
        seen = []
        for second in range(10):
            for message in await bench.claim("mail", limit=5, lease=60_000):
                seen.append((second, message.body))
                assert message.due == bench.now
            bench.move(1_000)
        assert seen == [(0, b"past"), (2, b"sooner"), (6, b"later"), (7, b"ready")]

    @needs("cancel")
    async def test_a_rescheduled_message_keeps_its_key_and_its_attempts(self, bench: Bench) -> None:
        # Given a message that failed once
        key: dict[str, Any] = {"key": "k"} if bench.can.keys else {}
        first = await bench.running("mail", b"body", max_attempts=3, **key)
        await bench.end(first, "retry", delay=5_000, error="oops")
        assert await bench.reschedule(first.id, delay=1_000) is RescheduleResult.MOVED
        if bench.can.lookup:
            assert (await bench.find(id=first.id)).last_error == "oops"
        if bench.can.keys:
            assert (await bench.put("mail", key="k")).id == first.id
        bench.move(1_000)
        [again] = await bench.claim("mail", limit=5)
        assert (again.id, again.body, again.key, again.max_attempts) == (first.id, b"body", first.key, 3)
        if bench.can.attempts:
            assert again.attempt == 2

    @needs("cancel")
    async def test_expiry_moves_with_the_due_time(self, bench: Bench) -> None:
        sent = await bench.put("mail", delay=1_000, expires_in=5_000)
        assert await bench.reschedule(sent.id, delay=10_000)
        if bench.can.lookup:
            assert (await bench.find(id=sent.id)).expires == bench.now + 15_000
        bench.move(14_000)
        assert await bench.reschedule(sent.id, delay=1_000)
        bench.move(5_000)
        assert [each.id for each in await bench.claim("mail", limit=5)] == [sent.id]
        # And also to an earlier time
        early = await bench.put("mail", delay=20_000, expires_in=1_000)
        assert await bench.reschedule(early.id)
        bench.move(2_000)
        assert await bench.claim("mail", limit=5) == []

    @needs("cancel")
    async def test_rescheduling_a_running_message_leaves_it_running(self, bench: Bench) -> None:
        held = await bench.running("mail")
        assert await bench.reschedule(held.id, delay=1_000) is RescheduleResult.RUNNING
        bench.move(1_000)
        assert await bench.claim("mail", limit=5) == []
        assert await bench.end(held, "done") == "done"
        bench.move(LEASE)
        assert await bench.claim("mail", limit=5) == []

    @needs("cancel")
    async def test_rescheduling_what_has_ended_says_gone(self, bench: Bench) -> None:
        for id in await ended(bench):
            assert await bench.reschedule(id) is RescheduleResult.GONE
        assert await bench.claim("mail", limit=5) == []

    @needs("cancel")
    async def test_rescheduling_a_dead_letter_says_dead_and_leaves_it(self, bench: Bench) -> None:
        dead = await bench.bury("mail", b"body")
        pending = await bench.put("mail", b"pending", delay=5_000)
        before = await bench.stored("mail", "dead") if bench.can.dead else []
        moves = [Move(Ref(id=dead.id), 1_000), Move(Ref(id=pending.id), 2_000), Move(Ref(id=dead.id), at=bench.now)]
        assert await bench.engine.reschedule(moves, now=bench.now) == [
            RescheduleResult.DEAD, RescheduleResult.MOVED, RescheduleResult.DEAD,
        ]  # fmt: skip
        # Then it is unchanged, and is not handed out at any of these times
        bench.move(2_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"pending"]
        if bench.can.dead:
            assert await bench.stored("mail", "dead") == before

    @needs("cancel")
    async def test_rescheduling_beyond_the_longest_delay_refuses_its_batch(self, bench: Bench) -> None:
        longest = bench.can.max_delay
        good = await bench.put("mail", b"good", delay=5_000)
        bad = await bench.put("mail", b"bad", delay=5_000)
        for far in (Move(Ref(id=bad.id), longest + 1), Move(Ref(id=bad.id), at=bench.now + longest + 1)):
            with pytest.raises(BadTime):
                await bench.engine.reschedule([Move(Ref(id=good.id)), far], now=bench.now)
        assert await bench.claim("mail", limit=5) == []
        bench.move(5_000)
        assert sorted(bodies(await bench.claim("mail", limit=5))) == [b"bad", b"good"]  # in any order: due at the same time
        # And the longest delay itself is accepted
        last = await bench.put("mail", delay=5_000)
        assert await bench.reschedule(last.id, delay=longest) is RescheduleResult.MOVED

    @needs("cancel")
    async def test_a_delay_may_count_from_the_due_time(self, bench: Bench) -> None:
        later = await bench.put("mail", b"later", delay=5_000)
        overdue = await bench.put("mail", b"overdue")
        far = await bench.put("mail", b"far", delay=bench.can.max_delay)
        bench.move(1_000)
        moves = [Move(Ref(id=each.id), 2_000, origin="due") for each in (later, overdue, later, far)]
        assert await bench.engine.reschedule(moves, now=bench.now) == [RescheduleResult.MOVED] * 4
        bench.move(999)
        assert await bench.claim("mail", limit=5) == []
        bench.move(1)
        [claimed] = await bench.claim("mail", limit=5)
        assert (claimed.id, claimed.due, claimed.since) == (overdue.id, bench.now, bench.now)
        bench.move(later.due + 4_000 - bench.now - 1)
        assert await bench.claim("mail", limit=5) == []
        bench.move(1)
        assert bodies(await bench.claim("mail", limit=5)) == [b"later"]
        # And it never comes to lie beyond the longest delay
        if bench.can.lookup:
            stored = await bench.find(id=far.id)
            assert stored.due <= bench.now + bench.can.max_delay

    @needs("cancel")
    async def test_a_message_set_aside_can_be_called_back_to_the_front(self, bench: Bench) -> None:
        first = await bench.running("mail", b"first", expires_in=50_000)
        bench.move(1_000)
        await bench.put("mail", b"second")
        bench.move(1_000)
        assert await bench.end(first, "release", delay=40_000, aside=True) == "scheduled"
        assert await bench.reschedule(first.id, origin="since") is RescheduleResult.MOVED
        [again] = await bench.claim("mail")
        assert (again.id, again.due, again.since, again.attempt) == (first.id, first.due, first.since, 1)
        # And expires when it would have
        assert await bench.end(again, "release", delay=40_000, aside=True) == "scheduled"
        assert await bench.reschedule(first.id, origin="since") is RescheduleResult.MOVED
        bench.move(48_000)
        assert bodies(await bench.claim("mail", limit=5)) == [b"second"]
