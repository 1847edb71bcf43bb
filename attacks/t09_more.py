"""Two adopters on a table, RQ, Celery; the source restarts; the destination is down; the way back."""
from common import *
import threading
from collections import Counter
from tests.servers.redis import RedisServer
from tests.servers.postgres import PostgresServer
from tests.adopt.celery_worker import envelope, queued, delivered, Worker
which = sys.argv[1] if len(sys.argv)>1 else "tcrdw"
def both(args, q, n=2):
    ps=[start(*args,url=q) for _ in range(n)]
    for p in ps:
        o,e=p.communicate(timeout=100); print("   ", p.returncode, o.strip()[:250], "|", e.strip()[-250:])
if "t" in which:
    import psycopg
    with PostgresServer() as s, RedisServer() as d:
        folder(); c=psycopg.connect(s.url,autocommit=True); c.execute("create table timers(id int primary key, due timestamptz, k text, done bool not null default false)")
        c.execute("insert into timers select g,'2100-01-01','k'||(g%5000) from generate_series(1,10000) g")
        A=["adopt","table","--query","select id,due,k from timers where not done","--take","update timers set done=true where id=:id","--undo","update timers set done=false where id=:id","--topic","t","--json","--source",s.url]
        both(A,d.url,3); m=msgs("t",d.url); ids=Counter(x.body["k"] for x in m); print("  table: three at once:", len(m), "of 10000; held", c.execute("select count(*) from bide_adopt").fetchall())
        c.execute("update timers set done=false"); d.client().flushall()
        both([*A,"--key-field","k"],d.url,2); m=msgs("t",d.url); print("  with keys: in bide", len(m), "waiting", c.execute("select count(*) from timers where not done").fetchall(), "held", c.execute("select count(*) from bide_adopt").fetchall(), "of 10000")
with RedisServer() as s, RedisServer() as d:
    c=s.client()
    if "c" in which:
        folder()
        with Worker(s.client()):
            for n in range(3000): (delivered if n%2 else queued)(c, envelope("t",[],{"n":n},eta=time.time()+3600))
            both(["adopt","celery","--topic","t","--json","--source",s.url],d.url); m=msgs("t",d.url); print("  celery two at once: in bide", len(m), "distinct", len({x.body["n"] for x in m}), "of 3000 left", c.keys())
    if "w" in which:
        c.flushall(); folder()
        from bide import Queue
        with Queue("sqlite:///bide.db") as q:
            for i in range(3): q.send("order.cancel", {"type":"sweep"}, delay=3600)
        import re
        code=re.search(r"```py\n(import json\n\nimport redis.*?)```", open(R+"/docs/adopt.md").read(), re.S).group(1)
        exec(compile(code,"doc","exec"),{"OLD_URL":s.url,"BIDE_URL":"sqlite:///bide.db"})
        with Queue("sqlite:///bide.db") as q: print("  way back: 3 messages with one body; at the source", c.zcard("delayed"), "in bide", len([x for x in q.messages("order.cancel",state="scheduled")]))
    if "d" in which:
        c.flushall(); d.client().flushall(); folder()
        for i in range(0,20000): c.zadd("z",{json.dumps({"n":i}):4e9+i})
        p=start("adopt","redis-zset","z","--topic","t","--json","--source",s.url,url=d.url)
        while c.zcard("z")>17000 and p.poll() is None: time.sleep(.002)
        d.kill() if hasattr(d,"kill") else None
        print("  destination killed:", p.communicate(timeout=90), p.returncode, "left", c.zcard("z"), "held", c.hlen("{z}:bide-adopt")//2)
    if "r" in which:
        pass
with RedisServer(appendonly="yes", appendfsync="always") as s, RedisServer() as d:
    if "s" in which or "r" in which:
        c=s.client(); folder(); p=c.pipeline()
        for i in range(20000): p.zadd("z",{json.dumps({"n":i}):4e9+i})
        p.execute(); tries=0
        while True:
            p=start("adopt","redis-zset","z","--topic","t","--json","--source",s.url,url=d.url); z=c.zcard("z")
            if tries<4:
                while c.zcard("z")>max(0,z-2000) and p.poll() is None: time.sleep(.002)
                s.kill(); time.sleep(.3); s.start()
                for _ in range(100):
                    try: c=s.client(); c.ping(); break
                    except Exception: time.sleep(.1)
            o,e=p.communicate(timeout=90); print("   ", p.returncode, o.strip()[:200], "|", e.strip()[-150:]); tries+=1
            if p.returncode==0 or tries>8: break
        m=msgs("t",d.url); print("  source killed 4 times: in bide", len(m), "distinct", len({x.body["n"] for x in m}), "of 20000")
