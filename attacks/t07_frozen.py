"""An adopter that is frozen between its take and its put, longer than the queue remembers; another run goes on meanwhile."""
from common import *
import signal
from collections import Counter
from tests.servers.redis import RedisServer
with RedisServer() as s, RedisServer() as dst:
    c = s.client(); url = s.url; D = dst.client(); q="sqlite:///bide.db" if "--sqlite" in sys.argv else dst.url
    C = ["adopt","redis-zset","z","--topic","t","--json","--source",url]
    folder(); 
    for i in range(3000): c.zadd("z", {json.dumps({"n":i}): 4e9+i})
    code=f"""
import os,sys,signal
from bide.adopt.adopting import Adoption
put=Adoption._put
def frozen(self,b,*a):
    if b: os.kill(os.getpid(), signal.SIGSTOP)
    return put(self,b,*a)
Adoption._put=frozen
sys.argv=['bide',*{C!r},'--url',{q!r}]
import runpy; runpy.run_module('bide',run_name='__main__')
"""
    p=subprocess.Popen([PY,"-c",code],env=ENV,stdout=subprocess.PIPE,stderr=subprocess.PIPE,text=True)
    while c.hlen("{z}:bide-adopt")==0: time.sleep(.01)
    time.sleep(1); print("frozen with held", c.hlen("{z}:bide-adopt")//2)
    show("another run within nine minutes", bide(*C,url=q))
    print("keys of the queue", Counter(k.decode().split(":")[0]+":"+k.decode().split(":")[1][:30] for k in D.keys()))
    ks=[k for k in D.keys() if b"op" in k.lower()]
    print(ks[:3])
    if "--age" in sys.argv:
        for k in ks:
            if b":ops:" in k: D.delete(k)
        if "--sqlite" in sys.argv:
            db=sqlite3.connect("bide.db"); print("aged", db.execute("update operation set born = born - 720000").rowcount); db.commit(); db.close()
    for _ in range(30):
        if p.poll() is not None: break
        try: os.kill(p.pid, signal.SIGCONT)
        except ProcessLookupError: break
        time.sleep(.5)
    print("first run, awake:", p.communicate(timeout=20), p.returncode)
    seen=Counter(m.body["n"] for m in msgs("t",q)); print("in bide", sum(seen.values()), "doubled", sum(v-1 for v in seen.values()))
