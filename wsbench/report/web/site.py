"""The pages as files: a folder that any web server can publish unchanged, and that also works from disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from wsbench.analysis.campaigns import Campaign, look, of_readable
from wsbench.records.files import read_file, whole_folder
from wsbench.report import export
from wsbench.report.web import pages
from wsbench.report.web.over_time import shown_metrics


def write(folders: list[Path], out: Path) -> tuple[int, list[str]]:
    """Writes the site into a new folder. Returns the number of campaigns and one line per unreadable campaign. UserError if the
    folder exists."""
    with whole_folder(out) as part:
        campaigns, broken = look(folders)

        def made(of: list[Campaign]) -> int:
            shutil.rmtree(part)  # the pages that a broken campaign has ended
            part.mkdir()
            _made(part, of, broken)
            return len(of)

        return of_readable(made, [one for one in campaigns if not one.running], broken), broken


def _made(part: Path, campaigns: list[Campaign], broken: list[str]) -> None:
    """Every page of these campaigns, in an empty folder. Raises what one of them raises."""
    (part / "assets").mkdir()
    for name in pages.ASSETS:
        shutil.copyfile(pages.HERE / name, part / "assets" / name)
    for one in campaigns:
        folder = part / "campaign" / one.id
        others = [other for other in campaigns if other.experiment == one.experiment and other.id != one.id]
        _write(folder / "index.html", pages.campaign(one, others, pages.Links("../../../", static=True)))
        for form in ("json", "csv"):
            (folder / f"campaign.{form}").write_bytes(export.FORMATS[form](export.Asked(one.results, [], [])))
        if one.report is not None:
            (folder / "report.html").write_bytes(read_file(one.report))
    for experiment in {one.experiment for one in campaigns}:
        chosen = [one for one in campaigns if one.experiment == experiment]
        text = pages.overlaid(f"Campaigns of {experiment}", chosen, None, pages.Links("../", static=True))
        _write(part / "overlay" / f"{experiment}.html", text)
        links = pages.Links("../", static=True)
        _write(part / "history" / f"{experiment}.html", pages.over_time(chosen, experiment, None, links))
        for metric in shown_metrics(chosen):
            page = pages.over_time(chosen, experiment, metric, links)
            _write(part / "history" / f"{experiment}.{metric}.html", page)
    _write(part / "index.html", pages.listing(campaigns, broken, pages.Links("", static=True)))
    _write(part / "claims.html", pages.claims(campaigns, pages.Links("", static=True)))


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
