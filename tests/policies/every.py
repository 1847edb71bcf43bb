"""All policies, and which of them are refused together, with what is said then."""

from tests.policies.after_others import Depending, Kept, Scheduled, ScheduledNowAndThen
from tests.policies.many import Batched, Dammed, Latest, Lost, Spread
from tests.policies.policies import (
    Cancelled,
    Deferred,
    Delayed,
    Expiring,
    Failing,
    Limited,
    LimitedPer,
    Locked,
    Overtime,
    Paused,
    Prioritized,
    Rated,
    Requeued,
    Rescheduled,
    Snoozing,
    Stopped,
)
from tests.policies.policy import Policy
from tests.policies.sent_again import Bounded, Debounced, Merged, Unique

# What sends again comes before what cancels and moves, and what counts comes after that.
ALL: tuple[type[Policy], ...] = (
    Delayed,
    Debounced,
    Bounded,
    Merged,
    Unique,
    Prioritized,
    Expiring,
    Paused,
    Cancelled,
    Rescheduled,
    Failing,
    Snoozing,
    Overtime,
    Requeued,
    Locked,
    Deferred,
    Limited,
    LimitedPer,
    Rated,
    Kept,
    Depending,
    Scheduled,
    ScheduledNowAndThen,
    Batched,
    Latest,
    Spread,
    Dammed,
    Lost,
    Stopped,
)

ONE_BY_ONE = "holds back single messages, so a batch would never fill: leave it out"
ONE_KEY = "give it with key=, and if_exists 'keep' or 'error'"
REFUSED: dict[frozenset[type[Policy]], str] = {
    **{frozenset((Batched, each)): ONE_BY_ONE for each in (Locked, Deferred, Limited, LimitedPer)},
    **{
        frozenset((Batched, each)): "a schedule sends one message: leave out batch="
        for each in (Scheduled, ScheduledNowAndThen)
    },
    frozenset((Batched, Kept)): "keep= and batch= don't go together",
    frozenset((Batched, Merged)): "a batch gathers what is sent by itself: leave if_exists='merge' out",
    **{frozenset((Unique, each)): ONE_KEY for each in (Debounced, Bounded, Merged)},
    **{
        frozenset((Depending, each)): "depends_on= goes with if_exists='keep' or 'error'"
        for each in (Debounced, Bounded, Merged)
    },
    frozenset((Depending, Delayed)): "leave delay= and at= out",
    **{frozenset((Spread, each)): "Leave out one of them" for each in (Locked, Deferred, LimitedPer)},
}
