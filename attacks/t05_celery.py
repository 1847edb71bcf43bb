"""Celery: a stale tag loops, counts, what is left without a word, real workers."""
from common import *
from tests.servers.redis import RedisServer
from tests.adopt.celery_worker import envelope, queued, delivered, Worker
with RedisServer() as s:
    c = s.client(); url = s.url
    def run(*more, timeout=40): return bide("adopt","celery","--topic","t","--source",url,*more, timeout=timeout)
    def fresh(): c.flushall(); folder()
    now=time.time()
    fresh(); c.zadd("unacked_index", {"stale": now}); queued(c, envelope("t",[],{"a":1}, eta=4e9))
    t=time.time(); n0=c.info("stats")["total_commands_processed"]; show("a stale tag in unacked_index (6 s given)", run("--json", timeout=6)); print("  commands", c.info("stats")["total_commands_processed"]-n0)
    print("  list", c.llen("celery"), "in bide", len(msgs("t")) if Path("bide.db").exists() else None)
    fresh(); queued(c, envelope("t",[],{"a":1}, eta=now+30)); delivered(c, envelope("t",[],{"a":2}, eta=now+30)); queued(c, envelope("t",[],{"a":3}))
    other=envelope("t",[],{"a":4}, eta=now+3000); other["properties"]["delivery_info"]["routing_key"]="other"; delivered(c, other)
    with Worker(s.client()):
        show("b 1 soon in list, 1 soon at a worker, 1 immediate, 1 of another queue; dry", run("--dry-run"))
        show("b run", run()); show("b json", run("--json"))
        print("  left", c.llen("celery"), c.hlen("unacked"))
    fresh()
    for n in range(5): delivered(c, envelope("t",[],{"a":n}, eta=now+30))
    with Worker(s.client()): show("b2 only such: 5 due within the margin", run())
    # eta inf / strange
    fresh()
    bad=[("eta", "9999-12-31T23:59:59.999999+00:00"),("eta","0001-01-01T00:00:00+14:00"),("eta",5),("expires","2020-01-01T00:00:00"),("id",5),("task",None),("retries","x"),("retries",{"a":1}),("bide-x","y"),("x-"*200,"y"),("","y"),("h","\ud800")]
    for k,v in bad: e=envelope("t",[],{"a":k}, eta=4e9); e["headers"][k]=v; queued(c,e)
    e=envelope("t",[],{"a":1},eta=4e9); e["body"]="é"; queued(c,e); e=envelope("t",[],{"a":1},eta=4e9); e["properties"]={}; queued(c,e); c.lpush("celery","["*5000+"]"*5000, b"\xff", "1", "{}", "null")
    e=envelope("t",[],{"a":1},eta=4e9); e["headers"]=[]; c.lpush("celery",json.dumps(e))
    show("c hostile", run("--json")); print("  left", c.llen("celery"))
