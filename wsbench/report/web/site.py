"""The pages as files: a folder that any web server can publish unchanged, and that also works from disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from wsbench.analysis.campaigns import Campaign, look
from wsbench.records.files import read_file, whole_folder
from wsbench.records.rundir import why_left_out
from wsbench.report import export
from wsbench.report.web import pages
from wsbench.report.web.over_time import shown_metrics


def write(folders: list[Path], out: Path) -> tuple[int, list[str]]:
    """Writes the site into a new folder. Returns the number of campaigns and one line per unreadable campaign. UserError if the
    folder exists."""
    with whole_folder(out) as part:
        (part / "assets").mkdir()
        for name in pages.ASSETS:
            shutil.copyfile(pages.HERE / name, part / "assets" / name)
        campaigns, broken = look(folders)
        campaigns = [one for one in campaigns if not one.running and _readable(one, part / "campaign" / one.id, broken)]
        _write(part / "index.html", pages.listing(campaigns, broken, pages.Links("", static=True)))
        _write(part / "claims.html", pages.claims(campaigns, pages.Links("", static=True)))
        for one in campaigns:
            folder = part / "campaign" / one.id
            others = [other for other in campaigns if other.experiment == one.experiment and other.id != one.id]
            _write(folder / "index.html", pages.campaign(one, others, pages.Links("../../../", static=True)))
        for experiment in {one.experiment for one in campaigns}:
            chosen = [one for one in campaigns if one.experiment == experiment]
            text = pages.overlaid(f"Campaigns of {experiment}", chosen, None, pages.Links("../", static=True))
            _write(part / "overlay" / f"{experiment}.html", text)
            links = pages.Links("../", static=True)
            _write(part / "history" / f"{experiment}.html", pages.over_time(chosen, experiment, None, links))
            for metric in shown_metrics(chosen):
                page = pages.over_time(chosen, experiment, metric, links)
                _write(part / "history" / f"{experiment}.{metric}.html", page)
    return len(campaigns), broken


def _readable(one: Campaign, folder: Path, broken: list[str]) -> bool:
    """Writes the campaign's downloads and report. If it raises in any page, returns False and adds a line to `broken`."""
    try:
        made = {f"campaign.{form}": export.FORMATS[form](export.Asked(one.results, [], [])) for form in ("json", "csv")}
        if one.report is not None:
            made["report.html"] = read_file(one.report)
        pages.every(one)
    except Exception as error:
        broken.append(why_left_out(one.run, error))
        return False
    folder.mkdir(parents=True)
    for name, content in made.items():
        (folder / name).write_bytes(content)
    return True


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
