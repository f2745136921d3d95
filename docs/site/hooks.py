"""Pages of the site that lie elsewhere in the repository, and links that fit both the site and the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
LEFT_OUT = re.compile(
    r"\[([^\]]+)\]\((?:CITATION\.cff|LICENSE|(?:\.\./)?NOTICE|(?:\.\./)?(?:hfcomp|tests|model_cards)/[^)]*|(?:\.\./)?recipes/[^)]*\.yaml)\)"
)
"""Links to files that are no pages: their text stays."""


def on_files(files: Files, config: Any) -> Files:
    """Adds README as the home page, CONTRIBUTING, SECURITY, CHANGELOG and the recipes' READMEs."""
    added = {"index.md": ROOT / "README.md"} | {name: ROOT / name for name in OUTSIDE}
    added |= {str(path.relative_to(ROOT)): path for path in sorted(ROOT.glob("recipes/*/README.md"))}
    for uri, path in added.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Links of the repository, which has the documents in docs/, as links of the site, which has them at its root."""
    uri = page.file.src_uri
    markdown = LEFT_OUT.sub(r"\1", markdown)
    if uri.startswith("recipes/"):
        return markdown.replace("](../../docs/", "](../../")
    if uri == "index.md" or uri in OUTSIDE:
        return markdown.replace("](docs/", "](")
    if uri.startswith("objectives/"):
        return markdown.replace("](../../recipes/", "](../recipes/")
    return markdown.replace("](../recipes/", "](recipes/").replace("](../CONTRIBUTING.md", "](CONTRIBUTING.md")
