"""All findings, and a report of them."""

from __future__ import annotations

from collections.abc import Sequence

from hfcomp.environment import devices, hub_access, packages, storage
from hfcomp.environment.findings import BROKEN, OK, Finding, findings_of
from hfcomp.reporting.report import Lines, Report, Section, Table

CHECKS = {
    packages.AREA: packages.find_packages,
    packages.EXTRAS: packages.find_extras,
    devices.AREA: devices.find_devices,
    storage.AREA: storage.find_storage,
    hub_access.AREA: hub_access.find_hub_access,
}
TITLES = {
    "packages": "Packages",
    "extras": 'Extras: pip install "hfcomp[...]"',
    "devices": "Devices",
    "storage": "Storage",
    "hub": "Hub",
}


def examine() -> list[Finding]:
    """What this machine has for hfcomp, area by area."""
    return [found for area, check in CHECKS.items() for found in findings_of(area, check)]


def environment_report(found: Sequence[Finding]) -> Report:
    """The findings as tables, what to fix, and whether hfcomp runs."""
    sections = [
        Section("", [_table(title, [one for one in found if one.area == area])]) for area, title in TITLES.items()
    ]
    fixes = [f"{one.name}: {one.fix}" for one in sorted(found, key=lambda one: one.state != BROKEN) if one.fix]
    sections.append(Section("What to do", [Lines(fixes, whole=True)]))
    broken = [one.name for one in found if one.state == BROKEN]
    verdict = f"Broken: {', '.join(broken)}." if broken else "Everything that hfcomp requires works."
    return Report("hfcomp doctor", sections=sections, verdict=[verdict])


def _table(title: str, found: Sequence[Finding]) -> Table:
    rows = [(one.name, "" if one.state == OK else one.state, one.found) for one in found]
    return Table("", (title, "", ""), rows, labels=3)
