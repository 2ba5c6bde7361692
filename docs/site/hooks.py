"""Pages of the documentation site that are files elsewhere in the repository.

Links between files of the repository become links between pages where the target is one, and the
file's name in the code's font where it is not.
"""

import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES = {"results/README.md": "results.md", "CHANGELOG.md": "changelog.md"}
"""File of the repository: page of the site."""
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    root = Path(config.config_file_path).parent
    for source, page in PAGES.items():
        text = (root / source).read_text()
        files.append(File.generated(config, page, content=linked(text, source)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    return linked(markdown, f"docs/{page.file.src_uri}") if not page.file.generated_by else markdown


def linked(text: str, source: str) -> str:
    """`text` of the file `source` with its links as the site needs them."""

    def replaced(match: re.Match[str]) -> str:
        image, label, target, anchor = match.groups()
        path = _resolved(PurePosixPath(source).parent, target)
        if path in PAGES:
            path = f"docs/{PAGES[path]}"
        if path.startswith("docs/"):
            return f"{image}[{label}]({path.removeprefix('docs/')}{anchor or ''})"
        return f"{label} (`{path}`)" if path.rpartition("/")[2] not in label else f"`{path}`"

    return LINK.sub(replaced, text)


def _resolved(folder: PurePosixPath, target: str) -> str:
    parts: list[str] = []
    for part in (folder / target).parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
