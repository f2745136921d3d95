"""Options that evaluate and compare share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from hfcomp.options import Options, Size

if TYPE_CHECKING:
    from hfcomp.reporting.pages.items import PageOptions

# Equal to those of hfcomp.statistics.summary and hfcomp.reporting.pages.items, which take long to import. A test
# compares them.
Tie = Literal["wrong", "half", "win"]
PAGE_ITEMS = 2000


@dataclass(kw_only=True)
class ReportPageOptions(Options):
    """Page of the report."""

    page_items: Annotated[Size, "Items to look at in report.html; 0 for none."] = PAGE_ITEMS
    no_thumbnails: Annotated[bool, "No pictures of these items."] = False
    no_page: Annotated[bool, "No report.html."] = False

    def page(self) -> PageOptions | None:
        """What goes into the page; None for no page."""
        from hfcomp.reporting.pages.items import PageOptions

        return None if self.no_page else PageOptions(items=self.page_items, thumbnails=not self.no_thumbnails)
