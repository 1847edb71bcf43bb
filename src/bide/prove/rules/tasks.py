"""What tasks promise: locks and limits, instants of schedules, results, dependencies, and sends that were merged."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from bide.prove.facts import NEVER, Act, Facts, Handled, MessageFacts, before
from bide.prove.report import Findings, Terms
from bide.prove.rules.times import MS


def judge(facts: Facts, terms: Terms, found: Findings) -> None:
    _limits(facts, found)
    _instants(facts, found)
    for message in facts.messages.values():
        if any(act.op == "result" for act in message.acts):
            _results(facts, message, found)
        if any(each.needs for each in message.handled):
            _dependencies(facts, message, found)
        if any(each.tags is not None for each in message.deliveries):
            _merged(facts, message, found)
    _merged_once(facts, found)


def _limits(facts: Facts, found: Findings) -> None:
    """Handlers that were in a gate at once, for sure. One whose lease was lost, or whose process died, does not count."""
    steps: dict[str, list[tuple[int, int, str, int]]] = {}
    for message in facts.messages.values():
        for handled in message.handled:
            if handled.gates and handled.ended != NEVER and not _lost(message, handled):
                for gate, places in handled.gates.items():
                    steps.setdefault(gate, []).append((handled.began, 1, message.id, places))
                    steps[gate].append((handled.ended, -1, message.id, places))
    for gate, each in steps.items():
        inside = 0
        for _, step, id, places in sorted(each):  # whoever leaves at an instant makes room for who comes at it
            inside += step
            if inside > places and step > 0:
                found.broken("limits", id, f"{inside} were in {gate} at once, which has room for {places}")


def _lost(message: MessageFacts, handled: Handled) -> bool:
    mine = [act for act in message.acts if act.token == handled.token]
    later = any(each.token > handled.token and each.began < handled.ended for each in message.deliveries)
    return later or any(act.outcome == "LeaseLost" for act in mine) or _outlives(message, handled, mine)


def _outlives(message: MessageFacts, handled: Handled, mine: Sequence[Act]) -> bool:
    """Whether its lease was not renewed in time, as of a process that stood still."""
    lease = min((each.lease for each in message.deliveries if each.token == handled.token), default=0)
    renewed = sorted(act.began for act in mine if act.op == "extend" and act.happened and act.began < handled.ended)
    given = [each.ended for each in message.deliveries if each.token == handled.token]
    times = [*given[:1], *renewed, handled.ended]
    return any(later - earlier > lease * MS for earlier, later in pairwise(times))


def _instants(facts: Facts, found: Findings) -> None:
    seen: dict[tuple[str, int], str] = {}
    for message in facts.messages.values():
        for handled in message.handled:
            if handled.planned is not None:
                first = seen.setdefault((handled.topic, handled.planned), message.id)
                if first != message.id:
                    found.broken("instants", message.id, f"is for {handled.planned} of {handled.topic}, as is {first}")


def _results(facts: Facts, message: MessageFacts, found: Findings) -> None:
    returned = [each for each in message.handled if each.result != "fail"]
    acks = [act for act in message.acts if act.op == "ack" and act.happened and not facts.forgotten(act)]
    for read in message.done("result"):
        final = [each for each in returned if any(before(ack, read) and ack.token == each.token for ack in acks)]
        may = final or [each for each in returned if each.began < read.ended]
        if not any(each.value in (None, read.value) for each in may):
            of = "whose message was acked" if final else "of any attempt"
            found.broken("results", message.id, f"its result is not what the handler returned {of}")


def _dependencies(facts: Facts, message: MessageFacts, found: Findings) -> None:
    moved = any(act.op == "reschedule" and act.possible for act in message.acts)
    deadlines = [send.due for send in message.sends if send.due is not None]
    for each in message.deliveries:
        handled = next((handled for handled in message.handled if handled.token == each.token), None)
        if handled is None or moved or not deadlines or each.now >= min(deadlines):
            continue
        for part in handled.needs:
            if not _may_be_done(facts.messages.get(part), handled.began):
                found.broken("dependencies", message.id, f"came before {part} was done, and before its deadline")


def _may_be_done(part: MessageFacts | None, at: int) -> bool:
    """A handler may have done its work, and died before it could write that down."""
    return part is not None and any(
        each.began < at and (each.result == "unknown" or (each.result == "ok" and each.ended < at)) for each in part.handled
    )


def _merged(facts: Facts, message: MessageFacts, found: Findings) -> None:
    """A handler finds the same list in each attempt, with all that was merged."""
    lists = [each for each in message.deliveries if each.tags is not None]
    for each in lists:
        tags = each.tags or ()
        if list(tags) != list(lists[0].tags or ()):
            found.broken("merged", message.id, f"has another list with the token {each.token} than in its first attempt")
        for send in message.sends:
            sure = send.if_exists == "merge" and send.result == "ok" and before(send, each) and not facts.forgotten(send)
            if sure and send.tag not in tags:
                found.broken("merged", message.id, f"came out without {send.tag}, which was merged into it")


def _merged_once(facts: Facts, found: Findings) -> None:
    places: dict[str, set[tuple[str, int]]] = {}
    for message in facts.messages.values():
        for each in message.deliveries:
            for place, tag in enumerate(each.tags or ()):
                places.setdefault(tag, set()).add((message.id, place))
    for tag, there in places.items():
        send = facts.sends.get(tag)
        if send is None:
            found.broken("merged", _first(there), f"has {tag}, which nobody has sent")
        elif len(there) > send.tries:
            found.broken("merged", _first(there), f"{tag} is there {len(there)} times: {sorted(there)}")


def _first(there: Iterable[tuple[str, int]]) -> str:
    return min(there)[0]
