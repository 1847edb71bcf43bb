"""The check of the Chinese pages: what it names, what it writes, and that the pages of this repository are in step."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools import translations

PAGES = {"README.zh.md": "README.md", "docs/zh/send.md": "docs/send.md"}

ENGLISH = """# Send

[中文](zh/send.md)

Give it a time.

## Now

```python
queue.send("a")  # due at once
```

## Later

| engine | late by | bytes |
|---|---|---|
| Redis | 12 ms | 1,200 + 30 |
| SQLite | 1.5 ms, at most 30 ms | – |

See [the start](../README.md).
"""

CHINESE = """# 发送

[English](../send.md)

给它一个时间。

## 现在

```python
queue.send("a")  # 立即到期
```

## 以后

| 引擎 | 晚多少 | 字节 |
|---|---|---|
| Redis | 12 ms | 1,200 + 30 |
| SQLite | 1.5 ms，最多 30 ms | – |

见[开始](../../README.zh.md)。
"""

Ran = Callable[..., tuple[int, str]]


@pytest.fixture
def pages(tmp_path: Path, ran: Ran) -> Path:
    """Two translated pages, in step."""
    (tmp_path / "docs" / "zh").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# It\n\n[中文](README.zh.md), see [Send](docs/send.md).\n", encoding="utf-8")
    (tmp_path / "README.zh.md").write_text("# 它\n\n[English](README.md)，见[发送](docs/zh/send.md)。\n", encoding="utf-8")
    (tmp_path / "docs" / "index.md").write_text("# Home\n", encoding="utf-8")
    (tmp_path / "docs" / "send.md").write_text(ENGLISH, encoding="utf-8")
    (tmp_path / "docs" / "zh" / "send.md").write_text(CHINESE, encoding="utf-8")
    assert ran("--accept", "README.zh.md", "docs/zh/send.md") == (0, "")
    return tmp_path


@pytest.fixture
def ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ran:
    """Runs the tool, and returns its exit code and what it says is wrong."""

    def run(*arguments: str) -> tuple[int, str]:
        code = translations.main(list(arguments), tmp_path, PAGES)
        return code, capsys.readouterr().err

    return run


def change(page: Path, before: str, after: str) -> None:
    text = page.read_text(encoding="utf-8")
    assert before in text
    page.write_text(text.replace(before, after), encoding="utf-8")


def test_the_pages_of_this_repository_are_in_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert (translations.main(["--check"]), capsys.readouterr().err) == (0, "")


def test_pages_that_were_accepted_are_in_step(pages: Path, ran: Ran) -> None:
    before = {path: path.read_bytes() for path in pages.rglob("*.md")}
    assert ran("--check") == (0, "")
    assert ran() == (0, "")
    assert {path: path.read_bytes() for path in pages.rglob("*.md")} == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("See [the start]", "Read [the start]"),
        ("| engine |", "| store |"),
        ("at most", "sometimes"),
    ],
)
def test_a_section_that_has_changed_is_named_until_its_page_is_accepted(pages: Path, ran: Ran, before: str, after: str) -> None:
    change(pages / "docs" / "send.md", before, after)
    code, says = ran("--check")
    assert code == 1
    assert says.startswith("docs/zh/send.md is stale: 'Later' of docs/send.md has changed.\n")
    assert says.count("stale") == 1
    assert ran()[0] == 1, "writing code and figures must not hide that the text is stale"
    assert ran("--accept", "docs/zh/send.md") == (0, "")


def test_a_comment_in_code_that_has_changed_makes_its_section_stale(pages: Path, ran: Ran) -> None:
    change(pages / "docs" / "send.md", "# due at once", "# due now")
    assert "docs/zh/send.md is stale: 'Now' of docs/send.md has changed." in ran("--check")[1]


def test_a_line_that_is_broken_elsewhere_makes_nothing_stale(pages: Path, ran: Ran) -> None:
    change(pages / "docs" / "send.md", "Give it a time.", "Give it\na time.")
    assert ran("--check") == (0, "")


def test_a_new_section_and_a_removed_one_are_named(pages: Path, ran: Ran) -> None:
    change(pages / "docs" / "send.md", "## Now", "## At once")
    says = ran("--check")[1]
    assert "docs/zh/send.md is stale: docs/send.md has a new section, 'At once'." in says
    assert "docs/zh/send.md is stale: docs/send.md has no section 'Now' any more." in says


def test_sections_in_another_order_are_named(pages: Path, ran: Ran) -> None:
    text = (pages / "docs" / "send.md").read_text(encoding="utf-8")
    begin, now, later = text.partition("## Now")[0], *text[text.index("## Now") :].split("## Later")
    (pages / "docs" / "send.md").write_text(f"{begin}## Later{later}\n{now}", encoding="utf-8")
    assert "docs/zh/send.md is stale: the sections of docs/send.md have another order." in ran("--check")[1]


def test_headings_that_do_not_correspond_are_named(pages: Path, ran: Ran) -> None:
    change(pages / "docs" / "zh" / "send.md", "## 以后", "### 以后")
    assert "docs/zh/send.md: heading 3 is '以后'; in docs/send.md it is 'Later'." in ran("--check")[1]
    change(pages / "docs" / "zh" / "send.md", "### 以后", "以后")
    assert "docs/zh/send.md: heading 3 is missing; in docs/send.md it is 'Later'." in ran("--check")[1]


def test_a_page_that_is_missing_is_named(pages: Path, ran: Ran) -> None:
    (pages / "docs" / "zh" / "send.md").unlink()
    code, says = ran("--check")
    assert code == 1
    assert "docs/zh/send.md is missing: translate docs/send.md" in says


def test_a_page_whose_english_page_is_gone_is_named(pages: Path, ran: Ran) -> None:
    (pages / "docs" / "send.md").unlink()
    assert "docs/zh/send.md: its English page, docs/send.md, is gone." in ran("--check")[1]


def test_a_page_that_nobody_has_listed_is_named(pages: Path, ran: Ran) -> None:
    (pages / "docs" / "zh" / "more.md").write_text("# 更多\n", encoding="utf-8")
    assert "docs/zh/more.md is not in PAGES" in ran("--check")[1]


def test_a_page_without_a_record_is_named(pages: Path, ran: Ran) -> None:
    (pages / "docs" / "zh" / "send.md").write_text(CHINESE, encoding="utf-8")
    assert "docs/zh/send.md has no record." in ran("--check")[1]


@pytest.mark.parametrize("page", ["docs/send.md", "docs/zh/send.md"])
def test_code_that_differs_is_named_then_written(pages: Path, ran: Ran, page: str) -> None:
    change(pages / page, 'queue.send("a")', 'queue.send("b")')
    code, says = ran("--check")
    assert code == 1
    assert "docs/zh/send.md: section '现在' has other code than 'Now'." in says
    code, says = ran()
    english = (pages / "docs" / "send.md").read_text(encoding="utf-8")
    assert english.split("```")[1] == (pages / "docs" / "zh" / "send.md").read_text(encoding="utf-8").split("```")[1]
    assert (code, "docs/zh/send.md: section '现在' has a comment in English: # due at once\n" in says) == (1, True)
    change(pages / "docs" / "zh" / "send.md", "# due at once", "# 立即到期")
    assert ran() == (0, "")


def test_a_block_in_another_language_is_named_then_written(pages: Path, ran: Ran) -> None:
    change(pages / "docs" / "send.md", "```python", "```py")
    assert "docs/zh/send.md: section '现在' has other code than 'Now'." in ran("--check")[1]
    assert ran() == (0, "")


def test_of_two_sections_that_are_alike_the_one_that_changed_is_written(pages: Path, ran: Ran) -> None:
    more = "\n## {}\n\n```python\nsend()\n```\n"
    for page, titles in (("docs/send.md", ("One", "Two", "Three")), ("docs/zh/send.md", ("一", "二", "三"))):
        text = (pages / page).read_text(encoding="utf-8").partition("<!-- translated")[0]
        (pages / page).write_text(text + "".join(map(more.format, titles)), encoding="utf-8")
    assert ran("--accept", "docs/zh/send.md") == (0, "")
    change(pages / "docs" / "send.md", "## Two\n\n```python\nsend()", "## Two\n\n```python\nsend_many()")
    assert ran() == (0, "")


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("给它一个时间。\n", "", "section '发送' has no paragraph where 'Send' has one."),
        ("| 晚多少 |", "| |", "section '以后' has an empty cell in the row '引擎'."),
        ("[开始](../../README.zh.md)", "开始", "section '以后' has no link to where ../README.md leads in docs/send.md."),
        ("[English](../send.md)", "English", "section '发送' has no link to where zh/send.md leads in docs/send.md."),
    ],
)
def test_what_a_translator_left_out_is_named(pages: Path, ran: Ran, before: str, after: str, says: str) -> None:
    change(pages / "docs" / "zh" / "send.md", before, after)
    assert f"docs/zh/send.md: {says}\n" in ran("--check")[1]
    assert ran()[0] == 1


def test_a_link_to_a_section_leads_to_that_section_of_the_chinese_page(pages: Path, ran: Ran) -> None:
    change(pages / "docs" / "send.md", "[the start](../README.md)", "[now](#now)")
    change(pages / "docs" / "zh" / "send.md", "[开始](../../README.zh.md)", "[现在](#现在)")
    assert ran("--accept", "docs/zh/send.md") == (0, "")
    for wrong in ("#以后", "#now"):
        change(pages / "docs" / "zh" / "send.md", "(#现在)", f"({wrong})")
        assert "section '以后' has no link to where #now leads in docs/send.md." in ran("--check")[1]
        change(pages / "docs" / "zh" / "send.md", f"({wrong})", "(#现在)")
    change(pages / "docs" / "zh" / "send.md", "(#现在)", "(../send.md#now)")
    assert "docs/zh/send.md links to ../send.md#now, which has a Chinese page: docs/zh/send.md." in ran("--check")[1]


def test_a_record_of_a_page_that_has_another_name_now_is_named(pages: Path, ran: Ran) -> None:
    change(pages / "docs" / "zh" / "send.md", "translated from docs/send.md", "translated from docs/post.md")
    says = "docs/zh/send.md is stale: its record is of docs/post.md, and its English page is docs/send.md."
    assert says in ran("--check")[1]


def test_text_before_the_first_heading_is_named(pages: Path, ran: Ran) -> None:
    change(pages / "docs" / "send.md", "# Send", "For all.\n\n# Send")
    assert "docs/zh/send.md: heading 1 is '发送'; in docs/send.md it is ''." in ran("--check")[1]


def test_a_block_of_code_that_is_left_out_is_named(pages: Path, ran: Ran) -> None:
    change(pages / "docs" / "zh" / "send.md", '```python\nqueue.send("a")  # 立即到期\n```\n', "")
    assert "docs/zh/send.md: section '现在' has other code than 'Now'." in ran("--check")[1]
    assert ran()[0] == 1, "where a block belongs is for a translator to say"


@pytest.mark.parametrize(
    ("before", "after"),
    [("12 ms", "14 ms"), ("1,200 + 30", "1,300"), ("1,200 + 30", "30 + 1,200"), ("1,200 + 30", "–")],
)
def test_figures_that_were_measured_again_are_named_then_written(pages: Path, ran: Ran, before: str, after: str) -> None:
    change(pages / "docs" / "send.md", before, after)
    code, says = ran("--check")
    assert code == 1
    assert "docs/zh/send.md: section '以后' has other figures in the row 'Redis' than 'Redis'." in says
    assert "stale" not in says
    assert ran() == (0, "")
    assert f"| {after} |" in (pages / "docs" / "zh" / "send.md").read_text(encoding="utf-8")


def test_figures_within_a_chinese_sentence_are_left_to_the_translator(pages: Path, ran: Ran) -> None:
    change(pages / "docs" / "send.md", "1.5 ms, at most 30 ms", "1.6 ms, at most 40 ms")
    assert ran()[0] == 1
    change(pages / "docs" / "zh" / "send.md", "1.5 ms，最多 30 ms", "最多 40 ms，一般 1.6 ms")
    assert ran("--check") == (0, "")


def test_a_row_that_is_missing_is_named(pages: Path, ran: Ran) -> None:
    change(pages / "docs" / "zh" / "send.md", "| Redis | 12 ms | 1,200 + 30 |\n", "")
    assert "docs/zh/send.md: section '以后' has 2 rows in its tables; 'Later' has 3." in ran("--check")[1]


def test_a_link_to_an_english_page_that_is_translated_is_named(pages: Path, ran: Ran) -> None:
    change(pages / "docs" / "zh" / "send.md", "../../README.zh.md", "../../README.md")
    assert "docs/zh/send.md links to ../../README.md, which has a Chinese page: README.zh.md." in ran("--check")[1]


def test_an_english_page_without_a_link_to_its_chinese_one_is_named(pages: Path, ran: Ran) -> None:
    change(pages / "docs" / "send.md", "[中文](zh/send.md)", "")
    assert "docs/send.md has no link to its Chinese page, docs/zh/send.md" in ran("--check")[1]


def test_a_word_that_the_glossary_replaces_is_named(pages: Path, ran: Ran) -> None:
    glossary = "# 术语表\n\n| 用词 | 英文 | 不用 |\n|---|---|---|\n| 发送 | send | |\n| 引擎 | engine | 后端、引挚 |\n"
    (pages / "docs" / "zh" / "glossary.md").write_text(glossary, encoding="utf-8")
    assert ran("--check") == (0, "")
    change(pages / "docs" / "zh" / "send.md", "| 引擎 |", "| 后端 |")
    assert "docs/zh/send.md says '后端' where the glossary says '引擎'." in ran("--check")[1]
    change(pages / "docs" / "zh" / "send.md", "| 后端 |", "| 引擎 |")
    change(pages / "docs" / "zh" / "send.md", "# 立即到期", "# 引挚里立即到期")
    assert "docs/zh/send.md says '引挚' where the glossary says '引擎'." in ran("--check")[1]


def test_the_home_of_the_site_is_made_from_the_readme_with_links_that_lead_there(pages: Path, ran: Ran) -> None:
    home = pages / "docs" / "zh" / "index.md"
    assert "# 它\n\n[English](../index.md)，见[发送](send.md)。\n" in home.read_text(encoding="utf-8")
    assert "translated from" not in home.read_text(encoding="utf-8")
    change(pages / "README.zh.md", "# 它", "# 它们")
    assert "docs/zh/index.md is not what README.zh.md makes of it." in ran("--check")[1]
    assert ran() == (0, "")
    assert "# 它们" in home.read_text(encoding="utf-8")


def test_a_page_that_it_does_not_know_is_refused(pages: Path, ran: Ran) -> None:
    assert ran("--accept", "docs/send.md")[0] == 2
    assert ran("--accept")[0] == 2
    assert ran("--chekc")[0] == 2
