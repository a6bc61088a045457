"""The pages, written: a folder that any web server can publish as it is, and that opens from the disk too."""

from __future__ import annotations

import shutil
from pathlib import Path

from wsbench import export
from wsbench.browse import pages
from wsbench.browse.campaigns import find
from wsbench.browse.over_time import shown_metrics
from wsbench.errors import UserError
from wsbench.report.reading import load


def write(folders: list[Path], out: Path) -> int:
    """Writes the site into a new folder and returns how many campaigns it has. UserError where the folder exists."""
    if out.exists():
        raise UserError(f"{out} exists; give a folder that is not there yet")
    campaigns = [one for one in find(folders) if not one.running]
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    (part / "assets").mkdir(parents=True)
    for name in pages.ASSETS:
        shutil.copyfile(pages.HERE / name, part / "assets" / name)
    _write(part / "index.html", pages.listing(campaigns, pages.Links("", static=True)))
    for one in campaigns:
        folder = part / "campaign" / one.id
        folder.mkdir(parents=True)
        others = [other for other in campaigns if other.experiment == one.experiment and other.id != one.id]
        _write(folder / "index.html", pages.campaign(one, others, pages.Links("../../../", static=True)))
        if one.report is not None:
            shutil.copyfile(one.report, folder / "report.html")
        results = load(one.run)
        for form in ("json", "csv"):
            (folder / f"campaign.{form}").write_bytes(export.FORMATS[form](export.Asked(results, [], [])))
    for experiment in {one.experiment for one in campaigns}:
        chosen = [one for one in campaigns if one.experiment == experiment]
        text = pages.overlaid(f"Campaigns of {experiment}", chosen, None, pages.Links("../", static=True))
        _write(part / "overlay" / f"{experiment}.html", text)
        links = pages.Links("../", static=True)
        _write(part / "history" / f"{experiment}.html", pages.over_time(chosen, experiment, None, links))
        for metric in shown_metrics(chosen):
            _write(part / "history" / f"{experiment}.{metric}.html", pages.over_time(chosen, experiment, metric, links))
    part.rename(out)
    return len(campaigns)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
