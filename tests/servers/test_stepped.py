"""Servers whose clock is stepped: they go by it from one moment to the next, and nothing else does."""

import time

from tests.servers.programs import needs_postgres, needs_program
from tests.servers.redis import RedisServer
from tests.servers.stepped import SteppedClock, SteppedPostgres, stepped_clock

HOUR = 3_600.0
NEAR = 60.0  # seconds, on a machine that is busy


def is_ahead(clock: SteppedClock, server: float, seconds: float) -> bool:
    return abs(server - time.time() - seconds) < NEAR and abs(clock.now_ns() / 1e9 - server) < NEAR


def test_a_redis_server_goes_by_a_clock_that_is_stepped() -> None:
    needs_program("redis-server")
    with stepped_clock() as clock, RedisServer(under=clock.under) as server, server.client() as client:
        client.set("soon", 1, ex=int(HOUR) // 2)
        assert is_ahead(clock, client.time()[0], 0)
        clock.step(HOUR)
        assert is_ahead(clock, client.time()[0], HOUR)
        assert is_ahead(clock, int(client.eval("return redis.call('time')[1]", 0)), HOUR)
        assert client.get("soon") is None
        clock.step(-3 * HOUR)
        assert is_ahead(clock, client.time()[0], -2 * HOUR)
        clock.set_right()
        assert is_ahead(clock, client.time()[0], 0)


def test_a_postgresql_server_goes_by_a_clock_that_is_stepped_in_connections_that_there_are() -> None:
    needs_postgres()
    with stepped_clock() as clock, SteppedPostgres(clock) as server, server.client() as client:
        for ahead in (0, HOUR, -2 * HOUR, 0):
            clock.set_right()
            clock.step(ahead)
            for function in ("clock_timestamp", "now"):
                found = client.execute(f"SELECT extract(epoch FROM {function}())::float8".encode()).fetchone()
                assert found is not None
                assert is_ahead(clock, found[0], ahead)
