"""What the built documentation needs beside its pages: links that lead out of the docs, and the language of Chinese pages.

MkDocs calls these functions. On a forge, a page links to examples and the README by relative paths. A site has no such files.
"""

import posixpath
import re
from typing import Any

LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]*)(#[^)\s]*)?\)")
HOME = {"README.md": "index.md", "README.zh.md": "zh/index.md"}  # pages that are made from these


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    return inside(markdown, page.file.src_uri, config.repo_url)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """The theme has one language for all pages; readers' browsers and screen readers need the page's own."""
    return output.replace('<html lang="en"', '<html lang="zh"', 1) if page.file.src_uri.startswith("zh/") else output


def inside(markdown: str, source: str, repository: str | None) -> str:
    """A page without links to files that the site does not have: they lead to the repository, or are its paths as text."""
    folder = posixpath.join("docs", posixpath.dirname(source))

    def of(link: re.Match[str]) -> str:
        text, path, anchor = link[1], posixpath.normpath(posixpath.join(folder, link[2])), link[3] or ""
        if path.startswith("docs/"):
            return link[0]
        if path in HOME:
            return f"[{text}]({posixpath.relpath(HOME[path], posixpath.dirname(source) or '.')}{anchor})"
        if repository:
            return f"[{text}]({repository.rstrip('/')}/blob/main/{path}{anchor})"
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    return LINK.sub(of, markdown)
