"""Which tests run when, and the table of faults.

| command | tests |
|---|---|
| `pytest -m "not system"` | unit tests: what needs no server, engine, browser or other program (`make check`) |
| `pytest` | also those marked `system`, which start them (`make test`) |
| `pytest --all` | also those marked `nightly` or `alone` and slow rows of faults; simulations at full size (`make test-all`) |

A test marked `alone` needs a CPU of its own. If it fails it runs once again, and the reason is printed.
"""

from functools import cache
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from xdist.scheduler import LoadScopeScheduling

#: Fixtures that start programs, and the marks of a test that uses one. A test that is marked `system` itself is not nightly.
STARTS = {"bed": ("root", "nightly"), "browser": ("nightly",), "carry_out": ("system",), "checked": ("system",)}


class Size:
    full = False


def draws(number: int, least: int = 20) -> int:
    """The number of draws of a simulation: all with `--all`, else a tenth."""
    return number if Size.full else max(number // 10, min(least, number))


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="also nightly tests, simulations at full size, and the table of faults")


def pytest_configure(config):
    config.addinivalue_line("markers", "fault(name, done, should, slow=False): a row of the table of faults")
    Size.full = config.getoption("--all")


@cache
def shares(file: str) -> bool:
    """Whether the tests of a file share a fixture that is made once."""
    return 'scope="module"' in (Path(__file__).parents[1] / file).read_text(encoding="utf-8")


class OneByOne(LoadScopeScheduling):
    """Whichever worker is free runs the next test. (xdist 3.8 does not see the groups of pytest 9.2.)"""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if shares(file) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return OneByOne(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        always = item.get_closest_marker("system") is not None
        for mark in (mark for fixture in STARTS.keys() & set(item.fixturenames) for mark in STARTS[fixture]):
            if not (always and mark == "nightly"):
                item.add_marker(mark)
        row = item.get_closest_marker("fault")
        if row is not None and row.kwargs.get("slow"):
            item.add_marker("nightly")
        if any(item.get_closest_marker(name) for name in ("root", "alone", "nightly")):
            item.add_marker("system")
    if not Size.full:
        later = [item for item in items if item.get_closest_marker("nightly") or item.get_closest_marker("alone")]
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if item not in set(later)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """A test that needs a CPU of its own has a second try."""
    if item.get_closest_marker("alone") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    failed = next((report for report in reports if report.failed), None)
    if failed is not None:
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        crash = getattr(failed.longrepr, "reprcrash", None)
        reports[-1].again = (crash.message if crash else str(failed.longrepr)).splitlines()[0]
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    made = yield
    row, report = item.get_closest_marker("fault"), made.get_result()
    if row is not None:
        report.fault = (*row.args, item.callspec.id if hasattr(item, "callspec") else "")


def pytest_terminal_summary(terminalreporter):
    reports = [report for of in terminalreporter.stats.values() for report in of]
    for report in reports:
        if hasattr(report, "again"):
            terminalreporter.write_line(f"ran twice: {report.nodeid}: {report.again}")
    if Size.full:
        write_faults(terminalreporter)


def write_faults(terminalreporter) -> None:
    """What is done to wsbench, what it should do, and whether it did."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            if hasattr(report, "fault") and (report.when == "call" or outcome != "passed"):
                rows.setdefault(report.fault[:3], []).append(outcome)
    if not rows:
        return
    terminalreporter.section("faults")
    terminalreporter.write_line("| fault | done | should | did |\n|---|---|---|---|")
    for (name, done, should), outcomes in sorted(rows.items()):
        did = ", ".join(f"{outcomes.count(one)} {one}" for one in dict.fromkeys(outcomes))
        terminalreporter.write_line(f"| {name} | {done} | {should} | {did} |")
