"""Pollers beside the adopter: a CTE or a comment at the end of --query takes the lock away. UUID ids loop."""
from common import *
from tests.servers.postgres import PostgresServer
import psycopg, threading
with PostgresServer() as s:
    url = s.url
    def do(q, *v):
        with psycopg.connect(url, autocommit=True) as c:
            cur = c.execute(q, v or None); return cur.fetchall() if cur.description else []
    def fresh(pk="int primary key"):
        do("drop table if exists timers"); do("drop table if exists bide_adopt"); folder()
        do(f"create table timers(id {pk}, due timestamptz, note text, done bool not null default false)")
    T = "update timers set done = true where id = :id"
    U = "update timers set done = false where id = :id"
    def run(*more, q, t=T, timeout=40):
        return bide("adopt","table","--query",q,"--take",t,"--topic","t","--json","--source",url,*more, timeout=timeout)
    def with_poller(name, q, *more):
        fresh(); do("insert into timers select g, now()-interval '1s', 'x' from generate_series(1,20) g")
        c = psycopg.connect(url)  # poller: locks 10 rows, handles them, marks them, commits
        mine = [r[0] for r in c.execute("select id from timers where not done and due < now() order by id limit 10 for update skip locked").fetchall()]
        box = []
        if "--follow" in more:
            p = start("adopt","table","--query",q,"--take",T,"--topic","t","--json","--source",url,*more)
        else:
            th = threading.Thread(target=lambda: box.append(run(*more, q=q))); th.start()
        time.sleep(4); c.execute("update timers set done=true where id = any(%s)", [mine]); c.commit(); c.close()
        if "--follow" in more:
            time.sleep(3); p.terminate(); o = p.communicate(timeout=20); box.append((p.returncode, *o))
        else: th.join()
        show(name, box[0])
        print("   handled by the poller:", len(mine), " in bide:", len(msgs("t")), " of 20 rows -> doubled", len(mine)+len(msgs("t"))-20)
    with_poller("plain (control)", "select id, due, note from timers where not done")
    with_poller("CTE", "with w as (select id, due, note from timers where not done) select id, due, note from w")
    with_poller("comment, --follow", "select id, due, note from timers where not done -- what waits", "--follow")
    fresh("uuid primary key default gen_random_uuid()")
    do("insert into timers(due,note) select '2100-01-01', 'k' || (g % 100) from generate_series(1,2500) g")
    r = run("--key-field","note","--undo",U, q="select id, due, note from timers where not done", timeout=30); show("uuid ids, 2500 rows, 100 keys", r)
    print(do("select count(*) from timers where not done"), do("select count(*) from bide_adopt"))
    fresh("uuid primary key default gen_random_uuid()")
    do("insert into timers(due,note) select '2100-01-01', 'k' || (g % 3) from generate_series(1,9) g")
    p = start("adopt","table","--query","select id, due, note from timers where not done","--take",T,"--undo",U,"--key-field","note","--topic","t","--json","--source",url,"--follow")
    time.sleep(8); p.terminate(); print("uuid --follow 8s, 9 rows", p.communicate(timeout=20))
    # a trigger / view with a rule is refused; NaN floats
    folder(); do("drop table timers"); do("create table timers(id int primary key, due timestamptz, x float8, n numeric, done bool not null default false)")
    do("insert into timers values (1,'2100-01-01','NaN',12345678901234567890.123456789)")
    show("floats", run(q="select id,due,x,n from timers where not done")); print("   body", [m.body for m in msgs("t")])
# SQLite, text that is no UTF-8
d = folder(); c = sqlite3.connect("old.db"); c.execute("create table timers(id integer primary key, due, note text, done int default 0)")
c.execute("insert into timers(due,note) values (4000000000, cast(x'ff41' as text))"); c.execute("insert into timers(due,note) values (4000000000, 'fine')"); c.commit()
A = ["adopt","table","--query","select id,due,note from timers where not done","--take","update timers set done=1 where id=:id","--topic","t","--json","--source",f"sqlite:///{d}/old.db"]
show("sqlite invalid utf-8", bide(*A)); print(c.execute("select count(*) from timers where done").fetchall())
# sqlite 1e18, inf, negative, huge
d = folder(); c = sqlite3.connect("old.db"); c.execute("create table timers(id integer primary key, due, note text, done int default 0)")
for v in (1e18, float("inf"), -5, "4000000000", "4e9", "2100-01-01 00:00:00", "2100-01-01T00:00:00Z", "nan", True, 2**62, "9"*400, b"x", "4_000_000_000", " 4000000000 "): c.execute("insert into timers(due) values (?)", [v])
c.commit(); A[-1]=f"sqlite:///{d}/old.db"; show("sqlite dues", bide(*A)); print([(m.due, m.body) for m in msgs("t")])
