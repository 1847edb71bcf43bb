"""Two adopters on one source; SIGKILL 100 times; a frozen adopter that wakes after the next run is done."""
from common import *
import random, signal
from collections import Counter
from tests.servers.redis import RedisServer
which = sys.argv[1] if len(sys.argv)>1 else "abc"
with RedisServer() as s, RedisServer() as dst:
    c = s.client(); url = s.url; D = dst.client()
    C = ["adopt","redis-zset","z","--topic","t","--json","--source",url]
    def fill(n, first=0): 
        p=c.pipeline()
        for i in range(first, first+n): p.zadd("z", {json.dumps({"n":i}): 4e9+i})
        p.execute()
    def judge(what, n, q):
        seen=Counter(m.body["n"] for m in msgs("t",q)); print(f"  {what}: in bide {sum(seen.values())} distinct {len(seen)} left {c.zcard('z')} held {c.hlen('{z}:bide-adopt')//2}: lost {n-len(seen)-c.zcard('z')-c.hlen('{z}:bide-adopt')//2} doubled {sum(v-1 for v in seen.values())}")
    if "a" in which:
      for name, q in (("sqlite","sqlite:///bide.db"),("redis",dst.url)):
        folder(); c.flushall(); D.flushall(); fill(20000)
        ps=[start(*C,url=q) for _ in range(3)]; outs=[(p.communicate(timeout=100),p.returncode) for p in ps]
        for (o,e),r in outs: print("  a", name, r, o.strip()[:300], e.strip()[-300:])
        judge("three at once on "+name, 20000, q)
    if "k" in which:  # two at once with keys and keep
        folder(); c.flushall(); D.flushall(); q=dst.url
        p=c.pipeline()
        for i in range(20000): p.zadd("z",{json.dumps({"n":i,"k":f"k{i%10000}"}):4e9+i})
        p.execute()
        ps=[start(*C,"--key-field","k",url=q) for _ in range(2)]; outs=[(p.communicate(timeout=100),p.returncode) for p in ps]
        for (o,e),r in outs: print("  k", r, o.strip()[:300], e.strip()[-300:])
        judge("two at once with keys", 20000, q)
    if "b" in which:
        q="sqlite:///bide.db"; folder(); c.flushall(); fill(60000); n=60000; rnd=random.Random(5); kills=0; amid=0; t=time.time()
        while kills<100 and time.time()-t<260:
            p=start(*C,url=q)
            # wait until it holds something, then 0-300 ms
            was=(c.zcard("z"), c.hlen("{z}:bide-adopt")); t1=time.time()
            while p.poll() is None and (c.zcard("z"), c.hlen("{z}:bide-adopt"))==was and time.time()-t1<5: time.sleep(.003)
            time.sleep(rnd.uniform(0,.3)); p.kill(); p.wait(); kills+=1; amid+=c.hlen("{z}:bide-adopt")>0
            if c.zcard("z")<3000: fill(30000,n); n+=30000
        print("  kills", kills, "amid", amid, "seconds", round(time.time()-t)); r=bide(*C,url=q); show("last", r); judge("100 kills", n, q)
    if "c" in which:
        q="sqlite:///bide.db"; folder(); c.flushall(); fill(20000)
        p=start(*C,url=q)
        while c.hlen("{z}:bide-adopt")==0: time.sleep(.001)
        time.sleep(.3); os.kill(p.pid, signal.SIGSTOP); time.sleep(.3)
        print("  c frozen with held", c.hlen("{z}:bide-adopt")//2)
        r=bide(*C,url=q); show("second run while the first is frozen", r); judge("then", 20000, q)
        db=sqlite3.connect("bide.db"); print([x[0] for x in db.execute("select name from sqlite_master where type='table'")])
        for (name,) in db.execute("select name from sqlite_master where type='table'").fetchall():
            cols=[x[1] for x in db.execute(f"pragma table_info({name})")]
            if "operation" in name: print(name, cols, db.execute(f"select count(*) from {name}").fetchall())
