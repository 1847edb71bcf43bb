"""`bide worker`: runs a queue's tasks, in this process or in several under a supervisor."""
