"""Redis sorted sets and lists: ids written by PHP, nested entries, counts, dry run, hostile bodies."""
from common import *
from tests.servers.redis import RedisServer
with RedisServer() as s:
    c = s.client(); url = s.url
    def dump(): return {k: (c.dump(k), c.pttl(k)) for k in sorted(c.keys())}
    def fresh(): c.flushall(); folder()
    def run(kind, key, *more, timeout=40): return bide("adopt", kind, key, "--topic", "t", "--json", "--source", url, *more, timeout=timeout)
    # a: PHP json_encode ids
    fresh()
    for n, (raw, real) in enumerate([(rb'{"topic":"order","id":"order\/42"}', "order/42"), (rb'{"topic":"order","id":"caf\u00e9"}', "café"), (b'{"topic":"order","id":43}', "43"), (rb'{"id":"q\"q"}','q"q')]):
        c.zadd("b", {raw: 4_000_000_000 + n}); c.hset("jobs", real, json.dumps({"body": n}))
    show("a PHP ids", run("redis-zset", "b", "--job-hash", "jobs", "--job-id", "id")); print("  left", c.zcard("b"), c.hlen("jobs"))
    # b: nested entry with --job-id
    fresh(); c.zadd("b", {b'{"id":"1","x":' + b"["*5000 + b"]"*5000 + b"}": 4e9, b'{"id":"2"}': 4e9+1}); c.hset("jobs", mapping={"1":"1","2":"2"})
    show("b deep entry, --job-id", run("redis-zset", "b", "--job-hash", "jobs", "--job-id", "id"))
    fresh(); c.zadd("b", {b'{"\xff":1,"id":"1"}': 4e9, b'{"id":"\xff"}': 4e9, b'{"id":"2"}': 4e9+1}); c.hset("jobs", mapping={"1":"1","2":"2"})
    show("b2 invalid utf-8 entry, --job-id", run("redis-zset", "b", "--job-hash", "jobs", "--job-id", "id"))
    fresh(); c.zadd("b", {b"["*5000 + b"]"*5000: 4e9, b'"\xff"': 4e9, b'{"a":"\xed\xa0\x80"}': 4e9, b'{"a":"\\ud800"}': 4e9, b'{"a":1e999}':4e9, b'NaN':4e9, b'':4e9, b'1'*5000:4e9, b'{"a":1,"a":2}':4e9, b' 1 ': 4e9, b'\x00':4e9, b'\xef\xbb\xbf{}':4e9}); show("b3 hostile members", run("redis-zset","b"))
    for m in msgs("t"): print("   ", repr(m.body)[:60])
    # c: equal unreadable elements
    fresh(); c.rpush("l", *["nojson"]*5, "1", "1"); show("c 5 equal unreadable elements", run("redis-list", "l")); print("  left", c.llen("l"))
    # d: scores
    fresh(); 
    now=time.time()
    sc = {"neg": -5, "inf": float("inf"), "-inf": float("-inf"), "e18": 1e18, "zero": 0, "frac": now+100.1234567, "ms": (now+100)*1000, "msf": (now+100)*1000+.5, "us": now*1e6, "99999999999": 99999999999, "1e11": 1e11, "-1e12": -1e12, "tiny":5e-324}
    c.zadd("z", {json.dumps(k): v for k, v in sc.items()}); before=dump(); show("dry", run("redis-zset","z","--dry-run")); print("  unchanged:", before==dump(), os.listdir("."))
    show("d scores", run("redis-zset","z")); 
    for m in msgs("t"):
        v=sc[m.body]; print("   ", m.body, v, m.due, "EARLY" if (v if abs(v)>=1e11 else v*1000) > m.due else "")
    # e: id first, job later, --follow
    fresh(); p = start("adopt","redis-zset","b","--job-hash","jobs","--topic","t","--json","--source",url,"--follow"); time.sleep(3)
    c.zadd("b", {"1": 4e9}); time.sleep(2.5); c.hset("jobs","1","1"); time.sleep(3); left=c.zcard("b"); p.terminate(); print("e id before its job, --follow:", left, "left;", p.communicate(timeout=20))
    # f: score corrected while --follow
    fresh(); c.zadd("b", {"1": "inf"}); p = start("adopt","redis-zset","b","--topic","t","--json","--source",url,"--follow"); time.sleep(3)
    c.zadd("b", {"1": 4e9}); time.sleep(3); left=c.zcard("b"); p.terminate(); print("f score corrected, --follow:", left, "left;", p.communicate(timeout=20))
    # g: --doubtful forget says?
    fresh(); c.hset("{z}:bide-adopt", mapping={f"{int(time.time()*1000)-700000}-abc-0:entry": "1", f"{int(time.time()*1000)-700000}-abc-0:score": "4000000000"})
    show("g doubtful", bide("adopt","redis-zset","z","--topic","t","--source",url)); show("g forget", bide("adopt","redis-zset","z","--topic","t","--source",url,"--doubtful","forget"))
    # h: options changed after a kill whose put was done
    fresh(); c.zadd("z", {json.dumps({"data": n}): 4e9 for n in range(10)})
    subprocess.run([PY,"-c",f"""
import os,sys
from bide.adopt.adopting import Adoption
Adoption._finish=lambda self,b,a: os._exit(9) if b else 0
sys.argv=['bide','adopt','redis-zset','z','--topic','t','--source',{url!r},'--url','sqlite:///bide.db']
import runpy; runpy.run_module('bide',run_name='__main__')
"""],env=ENV)
    print("  held", c.hlen("{z}:bide-adopt"), "bide", len(msgs("t")))
    show("h same command but --member body", run("redis-zset","z","--member","body")); print("  back at source", c.zcard("z"), "in bide", len(msgs("t")))
    show("h then the right one", run("redis-zset","z")); print("  in bide", len(msgs("t")), "of 10")
    # i: 10 MB
    fresh()
    for n in range(30): c.zadd("z", {json.dumps("x"*10_000_000 + str(n)): 4e9})
    import resource; r = run("redis-zset","z"); show("i 30 x 10 MB", r); print("  max RSS of children MB", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss//1024)
