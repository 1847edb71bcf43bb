"""A database in which somebody has made functions and operators in the schema public, under each name that bide's SQL uses.

Each of them counts, and raises. A search_path that begins with public finds them before those of PostgreSQL. PostgreSQL's own
search_path finds those for whose arguments pg_catalog has nothing that fits exactly (CVE-2018-1058).
"""

import itertools
import re
from collections.abc import Iterator, Sequence

import psycopg

from bide.engines.postgres import doctor, gates, join, layout, location, long_transactions, results, rows

NUMBERS = ("bigint", "integer", "smallint", "numeric", "double precision")
TEXTS = ("text", "varchar", '"char"', "name")
TIMES = ("timestamptz", "timestamp", "interval")
OTHERS = ("bytea", "boolean", "json", "jsonb", "oid", "regclass", "xid", "xid8")
ARRAYS = ("bigint[]", "integer[]", "text[]", "bytea[]", "boolean[]")
TYPES = (*NUMBERS, *TEXTS, *TIMES, *OTHERS, *ARRAYS)
FEW = ("bigint", "integer", "text", "bytea", "bigint[]", "text[]", "bytea[]")
MOST = 250  # functions of one name and number of arguments
BATCH = 500  # statements

MAKE = """
create sequence public.hijacked;
grant all on sequence public.hijacked to public;
create function public.noted(what text) returns void language plpgsql set search_path = pg_catalog as $$
begin
    perform nextval('public.hijacked');
    raise exception 'hijacked: %', what;
end $$;
"""


def texts() -> str:
    """All SQL that bide sends to a server, or keeps there."""
    calls = [*rows.CALLS.values(), *gates.CALLS.values(), *results.CALLS.values(), *doctor.QUESTIONS.values()]
    single = [layout.FIND, layout.READ, layout.LOCK, join.WHERE, long_transactions.FIND, location.LOOK]
    return "\n".join([layout.OURS.functions, *layout.OURS.migrations.values(), *calls, *single])


def hostile(client: psycopg.Connection) -> int:
    """Make them all; how many there are."""
    client.execute(MAKE.encode())
    statements = [*_functions(client), *_operators(client)]
    for first in range(0, len(statements), BATCH):
        client.execute(";".join(statements[first : first + BATCH]).encode())
    return len(statements)


def count(client: psycopg.Connection) -> int:
    """How often one of them was called."""
    [(last, called)] = client.execute("select last_value, is_called from public.hijacked").fetchall()
    return int(last) if called else 0


def _made(name: str, arguments: Sequence[str], returns: str) -> str:
    body = f"begin perform public.noted('{name}'); return null; end"
    return (
        f'create or replace function public."{name}"({", ".join(arguments)}) returns {returns} language plpgsql as $${body}$$'
    )


def _functions(client: psycopg.Connection) -> Iterator[str]:
    names = set(re.findall(r"\b([a-z_][a-z0-9_]*)\s*\(", texts()))
    found = client.execute(
        "select p.proname, p.pronargs, p.provariadic <> 0, array_agg(distinct format_type(p.prorettype, null)), "
        "array_agg(array_to_string(array(select format_type(t, null) from unnest(p.proargtypes) as t), ';')) "
        "from pg_proc p where p.pronamespace = 'pg_catalog'::regnamespace and p.proname = any(%s) and p.prokind <> 'p' "
        "group by 1, 2, 3 order by 1, 2",
        [sorted(names)],
    ).fetchall()
    for name, arity, variadic, _, signatures in found:
        wanted: dict[tuple[str, ...], None] = {}
        for signature in signatures:
            declared = signature.split(";") if signature else []
            wanted.update(dict.fromkeys(itertools.product(*(_alike(each, arity) for each in declared))))
        if variadic:
            wanted = dict.fromkeys(each for many in range(1, 6) for each in itertools.product(("text", "bigint"), repeat=many))
        for arguments in list(wanted)[:MOST]:
            yield _made(name, arguments, "text")


def _alike(declared: str, arity: int) -> Sequence[str]:
    for family in (NUMBERS, TEXTS, TIMES):
        if declared in family or (declared.startswith(("timestamp", "character")) and family is not NUMBERS):
            return family if arity < 4 else family[:2]
    if declared.startswith(('"any', "any")):
        return TYPES if arity == 1 else FEW
    return (declared,) if declared not in ("internal", "cstring") else ("text",)


def _operators(client: psycopg.Connection) -> Iterator[str]:
    text = re.sub(r"--.*|'[^']*'", "", texts())
    used = set(re.findall(r"[-+*/<>=~!@#%^&|?]+", text)) | {"~~", "!~~", "<>", "="}  # like, and what `in` and `distinct` mean
    known = {name for (name,) in client.execute("select distinct oprname from pg_operator").fetchall()}
    for number, (left, right) in enumerate(itertools.product(TYPES, TYPES)):
        pair = (left, right)
        yield _made(f"compares_{number}", pair, "boolean")
        yield _made(f"counts_{number}", pair, left)
        for operator in sorted(used & known):
            compares = operator[0] in "<>=!~" and operator not in (">>", "<<")
            function = f"{'compares' if compares else 'counts'}_{number}"
            yield f"create operator public.{operator} (function = public.{function}, leftarg = {left}, rightarg = {right})"
