"""What the server must be set to for our connections, whatever the user, the database or the server sets for all of theirs."""

from collections.abc import Sequence

from bide.errors import ConfigError

_NEEDED = {
    "default_transaction_isolation": "read committed",  # others would refuse what two do at the same time
    "standard_conforming_strings": "on",
    "array_nulls": "on",
}
LOOK = "select pg_catalog.pg_backend_pid(), pg_catalog.current_setting('server_encoding'), " + ", ".join(
    f"pg_catalog.current_setting('{name}')" for name in _NEEDED
)
_ENCODINGS = ("UTF8", "SQL_ASCII")  # the second stores the bytes that come


def settings_for(shown: str, found: Sequence[str], *, pooled: bool) -> str:
    """What to set for each connection, in libpq's form. Through a pooler nothing can be set for good."""
    encoding, *values = found
    if encoding not in _ENCODINGS:
        raise ConfigError(
            f"{shown} has the encoding {encoding}, in which not every text can be stored: create a database with "
            "`create database … encoding 'UTF8' template template0`."
        )
    odd = {name: right for (name, right), value in zip(_NEEDED.items(), values, strict=True) if value != right}
    if odd and pooled:
        told = " and ".join(f"`alter role … in database … set {name} = '{right}'`" for name, right in odd.items())
        raise ConfigError(f"{shown}: behind a pooler bide needs {told} for its user, since other values are set there.")
    return " ".join("-c {}={}".format(name, right.replace(" ", "\\ ")) for name, right in odd.items())
