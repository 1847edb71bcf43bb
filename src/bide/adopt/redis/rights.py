"""What the user of an old Redis has to be allowed, and what to do when Redis refuses it something."""

import re

RIGHTS = "+@read +@write -@dangerous +eval +time +select +publish +client|setname +client|list"
"""The commands of all sources, as ACL SETUSER takes them. docs/adopt.md has the same line."""
CLUSTER = "+cluster|slots +command"  # what the driver asks a Cluster
_NAMED = re.compile(r"'([\w|]+)' command")
_KEY = re.compile(r"access the '(.+)' key")
_KEYS = re.compile(r"\bkeys?\b")
_CHANNELS = re.compile(r"\bchannels?\b")
_LINE = re.compile(r"on @user_script:(\d+)")
_WORDS = re.compile(r"'([A-Z]+)'")


def lacks(text: str) -> bool:
    """Whether this error tells of a right that is missing. Servers before 7.2 tell it of a script without NOPERM."""
    return "NOPERM" in text or "has no permissions" in text or "executing the script can't" in text


def lacking(shown: str, text: str, script: str) -> str:
    """What to tell about an error that tells of a right. `script`: the text of the script that had it, or nothing."""
    needed = f"{RIGHTS} {CLUSTER}" if "+cluster:" in shown else RIGHTS
    return (
        f"The user at {shown} lacks a right{_refused(text, script)}. Let an administrator of that Redis run ACL SETUSER, with "
        f"the user's name and: {needed}. The user also needs the keys of the source (as ~delayed), and the key beside them (as "
        "~{delayed}:bide-adopt): the documentation lists, under Adopt waiting messages, Rights in Redis, both for each source."
    )


def _refused(text: str, script: str) -> str:
    if named := _NAMED.search(text):
        return f": Redis refused the command {named[1].upper()}"
    if found := _KEY.search(text):
        return f": Redis refused the key {found[1]}"
    if _KEYS.search(text):
        return ": Redis refused a key"
    if _CHANNELS.search(text):
        return ": Redis refused a channel of Pub/Sub"
    place, lines = _LINE.search(text), script.splitlines()  # Redis 6 and 7.0 name the line in place of the command
    if place and 0 < int(place[1]) <= len(lines) and (words := _WORDS.findall(lines[int(place[1]) - 1])):
        return f": Redis refused the command {' or '.join(words)}"
    return ""
