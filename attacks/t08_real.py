"""Real Celery, RQ and BullMQ."""
from common import *
import signal
from tests.servers.redis import RedisServer
V="/tmp/h/aadopt/attacks/venv/bin"
which = sys.argv[1] if len(sys.argv)>1 else "crb"
with RedisServer() as s:
    c = s.client(); url = s.url
    E = ENV | {"BROKER": url}
    if "c" in which:
        d=folder(); (d/"app.py").write_text('''
import os, time
from celery import Celery
app=Celery("x",broker=os.environ["BROKER"],backend=os.environ["BROKER"])
app.conf.task_acks_late=True; app.conf.broker_transport_options={"visibility_timeout":int(os.environ.get("VT","3600")),"unacked_restore_limit":None}
app.conf.broker_transport_options["priority_steps"]=list(range(10))
@app.task(name="t")
def t(n): open(os.environ["REC"],"a").write(f"{n} {time.time()}\\n")
@app.task(name="r", bind=True, max_retries=50)
def r(self,n):
    open(os.environ["REC"]+".r","a").write(f"{n} {self.request.retries}\\n")
    raise self.retry(countdown=8)
''')
        E |= {"REC": str(d/"rec"), "VT":"15"}
        w=[subprocess.Popen([V+"/celery","-A","app","worker","-c","2","-n",f"w{i}@h","--loglevel","ERROR"],cwd=d,env=E,start_new_session=True,stdout=subprocess.DEVNULL,stderr=open("w%d.log"%i,"w")) for i in (1,2)]
        time.sleep(6)
        subprocess.run([V+"/python","-c",'''
from app import *
from celery import chain, chord, group
for n in range(200): t.apply_async(kwargs={"n":n},countdown=35+n%10,priority=n%10)
for n in range(200,220): (t.si(n).set(countdown=35)|t.si(n+1000)).apply_async()
chord([t.si(n).set(countdown=35) for n in range(220,230)], t.si(5000)).apply_async()
for n in range(3): r.apply_async(kwargs={"n":n})
x=[t.apply_async(kwargs={"n":9000+n},countdown=35) for n in range(5)]
for y in x: y.revoke()
'''],cwd=d,env=E,check=True)
        time.sleep(5); print("  unacked", c.hlen("unacked"), "list", sum(c.llen(k) for k in c.keys("celery*") if c.type(k)==b"list"))
        bw=start("worker","--help"); bw.communicate()
        A=["adopt","celery","--topic","t","--json","--source",url,"--margin","6s","--args","t=n","--args","r=n"]
        p=start(*A); time.sleep(2.2); os.killpg(w[0].pid, signal.SIGKILL); w[0].wait(); print("  worker 1 killed; adopter running:", p.poll() is None); print("  first:", p.communicate(timeout=100), p.returncode)
        for _ in range(3): show("again", bide(*A)); time.sleep(3)
        time.sleep(40)
        from collections import Counter
        ran=Counter(int(l.split()[0]) for l in open(d/"rec")); got=Counter(m.body["n"] for m in msgs("t"))
        sure=set(range(200))
        print("  celery ran", sum(v for k,v in ran.items() if k in sure), "bide has", sum(v for k,v in got.items() if k in sure), "both", len([k for k in sure if ran[k] and got[k]]), "neither yet", len([k for k in sure if not ran[k] and not got[k]]), "celery twice", sum(v>1 for k,v in ran.items() if k in sure), "bide twice", sum(v>1 for k, v in got.items()))
        print("  revoked ones: ran", sum(ran[k] for k in range(9000,9005)), "in bide", sum(got[k] for k in range(9000,9005)))
        print("  chain", sum(ran[k] for k in range(200,220)), sum(ran[k] for k in range(1200,1220)), "in bide", sum(got[k] for k in range(200,230)), "chord body", ran[5000])
        print("  unacked", c.hlen("unacked"), "held", [ (k,c.hlen(k)) for k in c.keys("*bide-adopt*")])
        os.killpg(w[1].pid, signal.SIGTERM); w[1].wait(20)
        show("workers stopped", bide(*A,"--workers-stopped","--immediate"))
        got=Counter(m.body["n"] for m in msgs("t")); print("  neither", [k for k in sure if not ran[k] and not got[k]], "bide twice", [k for k,v in got.items() if v>1][:10], "revoked in bide", sum(got[k] for k in range(9000,9005)))
        print("  keys", c.keys()[:20])
    if "r" in which:
        c.flushall(); d=folder(); (d/"jobs.py").write_text("def f(x=None,*a,**k): pass\n")
        subprocess.run([V+"/python","-c",'''
import redis,os,datetime
from rq import Queue,Retry,Repeat
from rq.job import Job
from jobs import f
c=redis.Redis.from_url(os.environ["BROKER"]); q=Queue("default",connection=c)
D=datetime.timedelta(hours=1)
class X: pass
for i,v in enumerate([1,"a",float("inf"),float("nan"),2**70,{1:"a","1":"b"},(1,2),b"x",{1,2},datetime.datetime.now(),datetime.timedelta(1),None,[[]]*3,{"a":{None:1}},"\\ud800",1j,True]):
    try: q.enqueue_in(D,f,v,job_id=f"v{i}",meta={"m":1})
    except Exception as e: print("rq refuses",repr(v),e)
a=q.enqueue_in(D,f,1,job_id="parent"); q.enqueue(f,2,depends_on=a,job_id="child")
q.enqueue_in(D,f,3,job_id="retry",retry=Retry(max=3,interval=10)); q.enqueue_in(D,f,4,job_id="ttl",ttl=60); q.enqueue_in(D,f,5,job_id="with-dash")
q.enqueue_in(datetime.timedelta(seconds=-5),f,6,job_id="past")
for t in (0,-1):
    try: q.enqueue_in(D,f,7,job_id=f"ttl{t}",ttl=t)
    except Exception as e: print("rq refuses ttl",t,e)
q.enqueue(f,8,job_id="now")
q.enqueue_in(D,f,9,job_id="res",result_ttl=0,failure_ttl=5,on_success=f)
'''],cwd=d,env=E,check=True)
        dump=lambda: {k:c.dump(k) for k in sorted(c.keys())}
        b=dump(); show("rq dry", bide("adopt","rq","default","--topic","t","--args","jobs.f=x","--source",url,"--dry-run")); print("  unchanged", b==dump())
        show("rq", bide("adopt","rq","default","--topic","t","--args","jobs.f=x","--source",url,"--json","--queued"))
        for m in msgs("t"): print("   ", m.key, m.body, m.max_attempts, getattr(m,"expires",None))
        print("  left", c.zcard("rq:scheduled:default"), c.llen("rq:queue:default"), c.keys("*bide*"))
    if "b" in which:
        c.flushall(); d=folder(); 
        js='''
const {Queue,FlowProducer}=require("/tmp/h/aadopt/attacks/node/node_modules/bullmq");const u=new URL(process.env.BROKER);const connection={host:u.hostname,port:+u.port,maxRetriesPerRequest:null};
(async()=>{const q=new Queue("mail",{connection});
await q.add("d",{n:1},{delay:3600000,jobId:"mine"});await q.add("d",{n:2},{delay:3600000,attempts:5,backoff:100,priority:3});
await q.add("p",{n:3},{priority:2});await q.add("w",{n:4});await q.upsertJobScheduler("s",{every:60000},{name:"s",data:{n:5}});
await q.add("dd",{n:6},{delay:3600000,deduplication:{id:"x"}});await q.add("dd",{n:7},{delay:3600000,deduplication:{id:"y",ttl:50000}});
await q.add("dd",{n:8},{delay:3600000,deduplication:{id:"z",ttl:50000,extend:true,replace:true}});
const f=new FlowProducer({connection});await f.add({name:"par",queueName:"mail",data:{n:9},opts:{delay:3600000},children:[{name:"ch",queueName:"mail",data:{n:10},opts:{delay:3600000}}]});
await q.add("d",undefined,{delay:3600000});await q.add("d","text",{delay:3600000});await q.add("d",{n:Infinity},{delay:3600000});
const j=await q.add("d",{n:11},{delay:3600000});await j.log("line");await q.add("d",{n:12},{delay:1e15});await q.add("d",{n:13},{delay:3600000,lifo:true,sizeLimit:1000,removeOnComplete:true});
await q.pause();await q.add("w",{n:14});
console.log(await q.getJobCounts());process.exit(0)})()'''
        (d/"a.js").write_text(js); r=subprocess.run(["node","a.js"],cwd=d,env=E,capture_output=True,text=True); print(r.stdout,r.stderr[:300])
        dump=lambda: {k:c.dump(k) for k in sorted(c.keys())}
        b=dump(); show("bull dry", bide("adopt","bullmq","mail","--topic","t","--source",url,"--dry-run","--waiting")); print("  unchanged", b==dump())
        show("bull", bide("adopt","bullmq","mail","--topic","t","--source",url,"--json"))
        show("bull waiting", bide("adopt","bullmq","mail","--topic","t","--source",url,"--json","--waiting"))
        for m in msgs("t"): print("   ", m.body, m.max_attempts, m.headers, m.due)
        print("  left", sorted(k.decode() for k in c.keys()))
