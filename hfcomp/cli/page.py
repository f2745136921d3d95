"""Options shared by evaluate and compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from hfcomp.options import Options, Size

if TYPE_CHECKING:
    from hfcomp.reporting.pages.items import PageOptions

# Copies of values in hfcomp.statistics.summary and hfcomp.reporting.pages.items, which are slow to import. A test
# checks that they are equal.
Tie = Literal["wrong", "half", "win"]
PAGE_ITEMS = 2000


@dataclass(kw_only=True)
class ReportPageOptions(Options):
    """Page of the report."""

    page_items: Annotated[Size, "Number of items shown in report.html; 0 for none."] = PAGE_ITEMS
    no_thumbnails: Annotated[bool, "Do not show the items' images in report.html."] = False
    no_page: Annotated[bool, "Do not write report.html."] = False

    def page(self) -> PageOptions | None:
        """Returns the page's options, or None for no page."""
        from hfcomp.reporting.pages.items import PageOptions

        return None if self.no_page else PageOptions(items=self.page_items, thumbnails=not self.no_thumbnails)
