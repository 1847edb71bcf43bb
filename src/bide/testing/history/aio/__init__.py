"""Queues and engines that write down their calls, for event loops. `history/sync` is made from it."""
