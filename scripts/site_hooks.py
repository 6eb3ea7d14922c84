"""Hooks of the site (mkdocs.yml): a page for each module of the API, and the language of Chinese pages."""

from __future__ import annotations

import re
from typing import Any

from mkdocs.structure.files import File, Files

MODULE = re.compile(r"^::: ([\w.]+)$", re.M)
INDEX = "api.md"


def on_files(files: Files, config: Any) -> Files:
    """Add ``api/MODULE.md`` for each ``::: MODULE`` of api.md."""
    index = files.get_file_from_path(INDEX)
    for name in MODULE.findall(index.content_string) if index is not None else ():
        content = (
            f"# {name}\n\n[All modules](../{INDEX})\n\n::: {name}\n    options: {{show_root_heading: false, heading_level: 2}}\n"
        )
        files.append(File.generated(config, f"api/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """In api.md a module is a link to its page."""
    return MODULE.sub(r"- [`\1`](api/\1.md)", markdown) if page.file.src_uri == INDEX else markdown


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """The language of the page, for screen readers, browsers and the search of others."""
    chinese = page.file.src_uri.endswith("_zh.md") or "/zh/" in page.file.src_uri
    return re.sub(r'<html lang="\w+"', '<html lang="zh"', output, count=1) if chinese else output
