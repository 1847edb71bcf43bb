"""RQ: a job is made again under the same id while the first one is being moved. Also: two adopters, one of which meets a full queue."""
from common import *
import redis
from tests.servers.redis import RedisServer
from bide.adopt.arguments import TaskShape
from bide.adopt.redis.rq import rq
from bide.adopt.redis.server import Server
from bide.adopt.shaping import Shape
import pickle, zlib
with RedisServer() as s:
    c=s.client(); folder()
    def job(id, n):
        c.hset(f"rq:job:{id}", mapping={"data": zlib.compress(pickle.dumps(("f",None,(),{"n":n})))}); c.zadd("rq:scheduled:q",{id:4e9})
    src=rq(Server(s.url),"q",Shape(topic="t"),TaskShape(),queued=False)
    job("sync-7",1); a=src.take(10); job("sync-7",2); b=src.take(10)
    print(len(a.found),len(b.found), c.keys())
    src.finish([x.name for x in a.found])          # the first is in the queue
    try: src.give_back([x.name for x in b.found])  # the second is not: it has the key of the first
    except Exception as e: print("give back:", type(e).__name__, e)
    print("left:", c.keys(), c.hgetall("{rq:scheduled:q}:bide-adopt"))
    src.close(); show("next run", bide("adopt","rq","q","--topic","t","--json","--source",s.url)); print("left:", c.keys())
