"""The commands that bide calls, each as a call: so a server is asked whether a user may make it."""

from collections.abc import Mapping

KEY = "KEY"  # stands for a key of ours

CALLS: Mapping[str, str] = {
    "eval": f"return 1 {KEY}",
    "evalsha": f"- 1 {KEY}",
    "get": KEY,
    "hdel": f"{KEY} -",
    "hget": f"{KEY} -",
    "hgetall": KEY,
    "hincrby": f"{KEY} - 1",
    "hkeys": KEY,
    "hlen": KEY,
    "hmget": f"{KEY} -",
    "hscan": f"{KEY} 0",
    "hset": f"{KEY} - -",
    "info": "memory",
    "lindex": f"{KEY} 0",
    "llen": KEY,
    "lpush": f"{KEY} -",
    "lrange": f"{KEY} 0 1",
    "lset": f"{KEY} 0 -",
    "pexpire": f"{KEY} 1",
    "rpush": f"{KEY} -",
    "set": f"{KEY} -",
    "time": "",
    "unlink": KEY,
    "zadd": f"{KEY} 1 -",
    "zcard": KEY,
    "zcount": f"{KEY} 0 1",
    "zrange": f"{KEY} 0 1",
    "zrangebyscore": f"{KEY} 0 1",
    "zrem": f"{KEY} -",
    "zscore": f"{KEY} -",
}
"""What every user calls, and with which arguments it may be shown: a server does not tell of a call with too few."""

POLLS: Mapping[str, str] = {"lpop": KEY}
"""What a user who is woken by wake=poll calls as well."""
