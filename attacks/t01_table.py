"""Tables: rows that block, rows that are not counted, rows that loop."""
from common import *
from tests.servers.postgres import PostgresServer
import psycopg
with PostgresServer() as s:
    url = s.url
    def do(q, *v):
        with psycopg.connect(url, autocommit=True) as c:
            cur = c.execute(q, v or None); return cur.fetchall() if cur.description else []
    def fresh():
        do("drop table if exists timers"); do("drop table if exists bide_adopt"); return folder()
    Q = "select id, due, note from timers where not done order by due"
    T = "update timers set done = true where id = :id"
    U = "update timers set done = false where id = :id"
    def run(*more, q=Q, t=T, timeout=40):
        return bide("adopt","table","--query",q,"--take",t,"--topic","t","--json","--source",url,*more, timeout=timeout)
    # a: 1500 unreadable first
    fresh(); do("create table timers(id int primary key, due timestamptz, note text, done bool not null default false)")
    do("insert into timers select g, null, 'x' from generate_series(1,1500) g")
    do("insert into timers select g, '2100-01-01', 'x' from generate_series(2001,2500) g")
    show("a 1500 null dues first, 500 good", run(q="select id, due, note from timers where not done order by due nulls first"))
    print(do("select count(*) from timers where not done"))
    show("a again", run(q="select id, due, note from timers where not done order by due nulls first"))
    # b: uuid id, key kept
    fresh(); do("create table timers(id uuid primary key default gen_random_uuid(), due timestamptz, note text, done bool not null default false)")
    do("insert into timers(due,note) select '2100-01-01', 'same' from generate_series(1,5) g")
    show("b uuid id, same key x5, --undo", run("--key-field","note","--undo",U, timeout=25))
    print(do("select count(*) from timers where not done"))
    # b2: numeric id
    fresh(); do("create table timers(id numeric primary key, due timestamptz, note text, done bool not null default false)")
    do("insert into timers(id,due,note) select g,'2100-01-01', 'same' from generate_series(1,5) g")
    show("b2 numeric id, same key x5, --undo", run("--key-field","note","--undo",U, timeout=25))
    # c: infinity
    fresh(); do("create table timers(id int primary key, due timestamptz, note text, done bool not null default false)")
    do("insert into timers values (1,'infinity','never'),(2,'2100-01-01','ok')")
    show("c infinity", run()); show("c dry", run("--dry-run"))
    # d: numeric infinity/NaN/float
    fresh(); do("create table timers(id int primary key, due timestamptz, note numeric, done bool not null default false)")
    do("insert into timers values (1,'2100-01-01','Infinity'),(2,'2100-01-01',1)")
    show("d numeric Infinity", run())
    fresh(); do("create table timers(id int primary key, due timestamptz, note numeric, done bool not null default false)")
    do("insert into timers values (1,'2100-01-01','NaN'),(2,'2100-01-01','12345678901234567890.123456789'), (3,'2100-01-01',1e40),(4,'2100-01-01',1e5000)")
    show("d numeric", run()); print([m.body for m in msgs("t")])
    # h: ids null
    fresh(); do("create table timers(id int, due timestamptz, note text, done bool not null default false)")
    do("insert into timers select null, '2099-01-01', 'x' from generate_series(1,1500) g")
    do("insert into timers select g, '2100-01-01', 'x' from generate_series(2001,2500) g")
    show("h null ids", run()); print(do("select count(*) from timers where not done"))
    # dup ids
    fresh(); do("create table timers(id int, due timestamptz, note text, done bool not null default false)")
    do("insert into timers values (1,'2100-01-01','a'),(1,'2100-01-01','b'),(2,'2100-01-01','c')")
    show("h2 dup ids", run()); print(do("select * from timers"))
    # json id
    fresh(); do("create table timers(id int[], due timestamptz, note text, done bool not null default false)")
    do("insert into timers values ('{1}','2100-01-01','a')")
    show("h3 array id", run())
    # g: changed query after a kill
    fresh(); do("create table timers(id int primary key, due timestamptz, note text, done bool not null default false)")
    do("insert into timers select g, '2100-01-01', 'x' from generate_series(1,50) g")
    p = subprocess.run([PY,"-c",f"""
import os,sys
from bide.adopt.adopting import Adoption
Adoption._put=lambda self,*a: os._exit(9)
from bide.cli import main
sys.argv=['bide','adopt','table','--query',{Q!r},'--take',{T!r},'--topic','t','--source',{url!r},'--url','sqlite:///bide.db']
import runpy; runpy.run_module('bide',run_name='__main__')
"""],env=ENV,capture_output=True,text=True); print("killed", p.returncode, p.stderr[-200:])
    print("held", do("select count(*) from bide_adopt"), "waiting", do("select count(*) from timers where not done"))
    show("g run with another query text", run(q=Q+" "+", id"))
    print("held", do("select count(*) from bide_adopt"), "bide has", len(msgs("t")) if Path("bide.db").exists() else None)
    # names, array undo after kill
    fresh(); do('create table "Order ""x"" timers"("the id" int primary key, "due at" timestamptz, tags text[], done bool not null default false)')
    do('insert into "Order ""x"" timers" values (1,\'2100-01-01\',\'{a,b}\')')
    show("quoted", run("--id","the id","--due","due at",q='select "the id", "due at", tags from "Order ""x"" timers" where not done',t='update "Order ""x"" timers" set done=true where "the id" = :id'))
