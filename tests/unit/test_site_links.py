"""Links of pages that lead out of the docs: on a forge they are relative paths, on the site there is no such file."""

from types import SimpleNamespace

import pytest

from tools.site_links import inside, on_post_page


@pytest.mark.parametrize(
    ("source", "link", "becomes"),
    [
        ("examples.md", "[Flask](../examples/flask/README.md)", "[Flask](https://forge.test/bide/blob/main/examples/flask/README.md)"),
        ("zh/index.md", "[x](../../LICENSE)", "[x](https://forge.test/bide/blob/main/LICENSE)"),
        ("moving.md", "[when not](../README.md#when-not)", "[when not](index.md#when-not)"),
        ("zh/roads.md", "[when not](../../README.zh.md#when-not)", "[when not](index.md#when-not)"),
        ("recipes/shops.md", "[tasks](../tasks.md#a)", "[tasks](../tasks.md#a)"),
    ],
)  # fmt: skip
def test_a_link_out_of_the_docs_leads_to_the_repository_or_its_page(source: str, link: str, becomes: str) -> None:
    assert inside(f"See {link}.", source, "https://forge.test/bide/") == f"See {becomes}."


def test_without_a_repository_it_is_the_path() -> None:
    assert inside("[Flask](../examples/flask/README.md)", "examples.md", "") == "Flask (`examples/flask/README.md`)"
    assert inside("[`examples/flask`](../examples/flask)", "examples.md", None) == "`examples/flask`"


def test_a_chinese_page_says_that_it_is_chinese() -> None:
    for source, language in (("zh/index.md", "zh"), ("index.md", "en")):
        page = SimpleNamespace(file=SimpleNamespace(src_uri=source))
        assert on_post_page('<!doctype html><html lang="en">', page=page).endswith(f'<html lang="{language}">')
