"""What the Lua scripts of Redis must keep to that no server tells in time."""

import re

import pytest

from bide.engines.redis.script import LOOKS, commands, scripts, without_unused

MOST = 180  # of the 200 that Lua takes: parts are changed by people who don't know what else a script includes
DECLARED = re.compile(r"^local (?:function (?P<one>\w+)|(?P<some>\w+(?:, \w+)*))", re.MULTILINE)
READS = {
    "GET", "HGET", "HGETALL", "HLEN", "HMGET", "HSCAN", "LINDEX", "LLEN", "LRANGE",
    "TIME", "ZCARD", "ZCOUNT", "ZRANGE", "ZRANGEBYSCORE", "ZSCORE",
}  # fmt: skip


def locals_of(text: str) -> int:
    """How many names a script declares outside of all functions."""
    return sum(1 if found["one"] else found["some"].count(",") + 1 for found in DECLARED.finditer(text))


def test_names_are_counted() -> None:
    assert locals_of("local a, b = 1, 2\nlocal c\nlocal function d(e)\n  local f\nend\nlocalg = 1\n") == 4


@pytest.mark.parametrize("name", scripts())
def test_a_script_has_room_for_more_names(name: str) -> None:
    assert 10 < locals_of(scripts()[name].text) <= MOST


@pytest.mark.parametrize("name", LOOKS)
def test_a_script_that_looks_asks_for_no_right_to_write(name: str) -> None:
    assert set(commands(scripts()[name].text)) <= READS


def test_functions_and_values_that_nothing_names_are_left_out() -> None:
    text = """local ONE, SIX = 1, 6 -- so is two
local SEVEN, EIGHT = floor(7), 8
local nine = take_text()
local ten = {} -- eleven
local function two() return ONE end -- of four
local function three(x)
  if not x then return end
  return two()
end

local function four() return 4 end

return four('three', x.two, EIGHT)
"""
    assert without_unused(text) == (
        "local SEVEN, EIGHT = floor(7), 8\nlocal nine = take_text()\n\n"
        "local function four() return 4 end\n\nreturn four('three', x.two, EIGHT)\n"
    )


@pytest.mark.parametrize("name", scripts())
def test_a_script_has_no_function_that_it_does_not_name(name: str) -> None:
    text = re.sub(r"--[^\n]*", "", scripts()[name].text)
    for function in re.findall(r"^ *local function (\w+)", text, re.MULTILINE):
        assert len(re.findall(rf"\b{function}\b", text)) > 1, function
