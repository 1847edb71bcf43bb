"""RabbitMQ: counts, give back, equal messages, copied properties, lost connections, priorities."""
from common import *
import asyncio, aiormq
from datetime import UTC, datetime
from pamqp.commands import Basic
from tests.servers.rabbitmq import RabbitServer
from bide import Queue
from bide.adopt.adopting import Adoption
from bide.adopt.rabbitmq.letter import Waits
from bide.adopt.rabbitmq.ttl import opened, TTLQueue
from bide.adopt.shaping import Shape
from bide.errors import QueueFull
HOUR=3_600_000
class Killed(Exception): pass
def amqp(url, work):
    async def go():
        async with aiormq.connect(url) as c:
            ch = await c.channel(publisher_confirms=False); r = await work(ch); await ch.queue_declare("work", durable=True); return r  # no message ids, as pika sends
    return asyncio.run(go())
def declare(url, name, **args):
    async def w(ch):
        try: await ch.queue_delete(name)
        except Exception: pass
        await ch.queue_declare(name, durable=True, arguments={"x-dead-letter-exchange":"","x-dead-letter-routing-key":"work"}|args)
    async def w2(ch): await ch.queue_declare("work", durable=True)
    amqp(url, w2); amqp(url, w)
def send(url, rk, bodies, ex="", **p):
    async def w(ch):
        for b in bodies: await ch.basic_publish(b, exchange=ex, routing_key=rk, properties=Basic.Properties(**p))
    amqp(url, w)
def count(url, q): return amqp(url, lambda ch: cnt(ch,q))
async def cnt(ch,q): return (await ch.queue_declare(q, passive=True)).message_count
def drain(url, q):
    async def w(ch):
        out=[]
        while not isinstance((g:=await ch.basic_get(q,no_ack=True)).delivery, Basic.GetEmpty): out.append((bytes(g.body), g.header.properties, g.delivery))
        return out
    return amqp(url, w)
def cli(url,*more): return bide("adopt","rabbitmq-ttl","wait","--topic","t","--json","--source",url,*more)
def source(url, **w): return opened(url, Waits(queue="wait", **w), Path("bide-adopt.db"), Shape(topic="t"), look_only=False)
js = lambda n, m=10**9: [json.dumps({"n": i % m}).encode() for i in range(n)]
which = sys.argv[1] if len(sys.argv)>1 else "abcdefgh"
with RabbitServer() as s:
    url = s.url
    if "a" in which:
        folder(); declare(url,"wait"); send(url,"wait",[b"nojson%d"%i for i in range(2500)],expiration=str(HOUR)); send(url,"wait",js(10),expiration=str(HOUR))
        show("a 2500 unreadable, 10 good", cli(url)); print("  left", count(url,"wait"))
    if "b" in which:
        folder(); declare(url,"wait",**{"x-max-length":10,"x-overflow":"reject-publish"}); send(url,"wait",js(10),expiration=str(HOUR))
        src=source(url)
        with Queue("sqlite:///bide.db") as q:
            ad=Adoption(src,q); q.session.open()
            def full(*_):
                # meanwhile a producer fills the queue up to 5
                send(url,"wait",[b'{"other":%d}'%i for i in range(5)],expiration=str(HOUR)); raise QueueFull("no room")
            q.session.put_many=full
            try: ad.run(lambda _:None, lambda:False)
            except BaseException as e: print("  b run ended:", type(e).__name__, str(e)[:100], "in_hand", ad.in_hand)
        src.close(); print("  at source now", count(url,"wait"), "held", sqlite3.connect("bide-adopt.db").execute("select count(*) from held").fetchall())
        show("b next run, with room", cli(url)); got=[m.body for m in msgs("t")]; ns=[x["n"] for x in got if "n" in x]; print("  in bide", len(got), "of 15; twice:", len(ns)-len(set(ns)))
    if "c" in which:
        folder(); declare(url,"wait"); send(url,"wait",js(2000,1500),expiration=str(HOUR),message_id="same")  # 0..1499, 0..499; pika sends no message id; aiormq can not, so all have one
        # a consumer got all of them and died, or a run that looked through 5000 was killed: all are marked as redelivered
        async def touch(ch):
            for _ in range(2000): await ch.basic_get("wait")
        amqp(url, touch)
        src=source(url); mark=src._notebook.mark
        def m(names, phase):
            if phase=="taken": raise Killed
            mark(names, phase)
        src._notebook.mark=m
        with Queue("sqlite:///bide.db") as q:
            try: Adoption(src,q).run(lambda _:None, lambda:False)
            except Killed: pass
        src.close(); time.sleep(1); print("  c killed after the broker forgot 1000; left there", count(url,"wait"), "held", sqlite3.connect("bide-adopt.db").execute("select phase,count(*) from held group by 1").fetchall())
        show("c next run", cli(url)); print("  in bide", len(msgs("t")), "left", count(url,"wait"), "of 2000 -> lost", 2000-len(msgs("t"))-count(url,"wait"))
    if "d" in which:
        folder(); declare(url,"wait"); declare(url,"wait.1", **{"x-message-ttl": 1000})
        declare(url,"work"); 
        async def w(ch):
            await ch.queue_delete("work"); await ch.queue_declare("work",durable=True)
            await ch.basic_publish(b'{"n":1}', routing_key="wait.1", properties=Basic.Properties())
            await asyncio.sleep(10)  # expired after 1 s, the consumer of work gets it after 10
            g=await ch.basic_get("work")
            await ch.basic_publish(bytes(g.body), routing_key="wait", properties=g.header.properties)  # tried, failed: to the next queue, as it was
            await ch.basic_publish(b'{"n":2}', routing_key="wait", properties=Basic.Properties(timestamp=datetime.fromtimestamp(time.time()-600,UTC)))
        amqp(url,w); came=time.time()*1000
        show("d", cli(url,"--ttl","1m")); 
        for m_ in msgs("t"): print("  due", m_.due, "would have been dead-lettered at", int(came+60000), "early by s", (came+60000-m_.due)/1000, m_.body)
    if "e" in which:
        folder(); declare(url,"wait"); send(url,"wait",js(50),expiration=str(HOUR))
        first=source(url); broker=first._broker
        from bide.errors import Unavailable
        def cut(tags): raise Unavailable("the network is cut: no answer, and the broker does not know it yet")
        broker.take=cut
        with Queue("sqlite:///bide.db") as q:
            try: Adoption(first,q).run(lambda _:None, lambda:False)
            except Unavailable: pass
        first._notebook.close()  # the process ends; at the broker, its connection lives until heartbeats are missed
        show("e next run, before the broker has noticed", cli(url)); 
        broker.close(); time.sleep(1); print("  in bide", len(msgs("t")), "and again at the source", count(url,"wait"))
    if "f" in which:
        folder(); declare(url,"wait",**{"x-max-priority":9}); send(url,"wait",js(50),expiration=str(HOUR),priority=0)
        src=source(url); 
        def die(*_): raise Killed
        src._broker.take=die
        with Queue("sqlite:///bide.db") as q:
            try: Adoption(src,q).run(lambda _:None, lambda:False)
            except Killed: pass
        src.close(); time.sleep(1)
        send(url,"wait",[b'{"hi":%d}'%i for i in range(5100)],expiration=str(HOUR),priority=9)
        show("f", cli(url)); got=[x.body["n"] for x in msgs("t") if "n" in x.body]; print("  of the 50:", len(got), "in bide, twice", len(got)-len(set(got)))
    if "g" in which:
        folder(); declare(url,"wait"); declare(url,"audit")
        async def w(ch):
            await ch.exchange_declare("ev", exchange_type="fanout")
            for x in ("wait","audit"): await ch.queue_bind(x,"ev")
            for i in range(5): await ch.basic_publish(b'{"k":"same"}', exchange="ev", routing_key="x", properties=Basic.Properties(expiration=str(HOUR), priority=5, reply_to="r", app_id="a", delivery_mode=1, timestamp=datetime.now(UTC)))
        amqp(url,w); print("  g before: audit", count(url,"audit"))
        show("g 5 with one key, 4 go back", cli(url,"--key-field","k")); print("  audit has", count(url,"audit"), "wait", count(url,"wait")); 
        print("  ", {k:v for k,v in dict(drain(url,"wait")[0][1]).items() if v is not None})
