"""Two adopters: one resumes what the other is moving, and the other's queue refuses it and gives it back."""
from common import *
from collections import Counter
from tests.servers.redis import RedisServer
from bide import Queue
from bide.adopt.adopting import Adoption
from bide.adopt.redis.server import Server
from bide.adopt.redis.zset import SortedSet
from bide.adopt.shaping import Shape
from bide.errors import QueueFull
with RedisServer() as s:
    c=s.client(); folder()
    for i in range(100): c.zadd("z",{json.dumps({"n":i}):4e9+i})
    src=SortedSet(Server(s.url),"z",Shape(topic="t"))
    with Queue("sqlite:///bide.db") as q:
        q.session.open()
        def full(*_):
            show("the other one, meanwhile", bide("adopt","redis-zset","z","--topic","t","--json","--source",s.url)); raise QueueFull("full for a moment")
        q.session.put_many=full
        try: Adoption(src,q).run(lambda _:None, lambda:False)
        except QueueFull as e: print("first:", e)
    show("next", bide("adopt","redis-zset","z","--topic","t","--json","--source",s.url))
    seen=Counter(m.body["n"] for m in msgs("t")); print("in bide", sum(seen.values()), "of 100, left", c.zcard("z"))
# SIGKILL of a rq and a bullmq adopter
    import zlib, pickle, random
    for kind in ("rq","bullmq","redis-list"):
        c.flushall(); folder(); p=c.pipeline(); N=20000
        for i in range(N):
            if kind=="rq": p.hset(f"rq:job:j{i}",mapping={"data":zlib.compress(pickle.dumps(("f",None,(),{"n":i})))}); p.zadd("rq:scheduled:q",{f"j{i}":4e9})
            elif kind=="bullmq": p.hset(f"bull:q:{i}",mapping={"name":"n","data":json.dumps({"n":i}),"opts":"{}"}); p.zadd("bull:q:delayed",{i:4000000000000*4096+i%4096})
            else: p.rpush("q",json.dumps({"n":i}))
        p.execute(); kills=0
        A=["adopt",kind,"q","--topic","t","--json","--source",s.url]; t=time.time(); held=lambda: sum(c.hlen(k) for k in c.keys("*:bide-adopt"))
        while kills<15 and time.time()-t<40:
            p=start(*A); was=c.info("stats")["total_commands_processed"]; t1=time.time(); h=held()
            while p.poll() is None and held()==h and time.time()-t1<2: time.sleep(.003)
            time.sleep(random.uniform(0,.15)); p.kill(); p.wait(); kills+=1
        show(f"{kind} after {kills} kills", bide(*A)); seen=Counter(m.body["n"] for m in msgs("t")); print("  in bide", sum(seen.values()), "distinct", len(seen), "of", N, "keys left", [k for k in c.keys()][:3])
