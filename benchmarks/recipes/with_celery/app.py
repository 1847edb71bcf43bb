"""What all recipes of Celery share. These lines are not counted."""

from celery import Celery

from benchmarks.recipes.shop import REDIS, seconds

app = Celery("recipes", broker=REDIS)
app.conf.task_ignore_result = True
app.conf.task_acks_late = True  # so that what a dead worker held comes back, as with bide
app.conf.task_reject_on_worker_lost = True
app.conf.worker_redirect_stdouts = False
app.conf.broker_connection_retry_on_startup = True

# Redis delivers a task again whose ETA is further away than visibility_timeout, one hour by default. Celery's docs advise
# against long ETAs. So what is due in hours or days is a column, and a periodic task looks for it: every minute, usually.
SWEEP = seconds("SWEEP_EVERY", 60)
