"""`bide doctor` of a PostgreSQL queue, as a user calls it."""

from tests.cli.running import Bide


def test_a_server_that_is_away_is_told_of_without_the_password(bide: Bide) -> None:
    told = bide("doctor", "--url", "postgres://me:s3cret@127.0.0.1:1/shop")
    assert told.code == 1
    assert "postgres://127.0.0.1:1/shop" in told.out
    assert "s3cret" not in told.out + told.err
