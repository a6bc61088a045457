"""The table of faults: what is done to wsbench, what it should do, and whether it did. Each is a test.

`make faults` runs all of them and prints the table; `make test` leaves out those that take long or are run by it elsewhere.
"""

import pytest


def pytest_addoption(parser):
    parser.addoption("--all-faults", action="store_true", help="also those that take long; prints the table")


def pytest_configure(config):
    config.addinivalue_line("markers", "fault(name, done, should, slow=False): a row of the table of faults")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--all-faults"):
        return
    rows = [item.get_closest_marker("fault") for item in items]
    slow = [item for item, row in zip(items, rows, strict=True) if row is not None and row.kwargs.get("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item not in slow]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    made = yield
    row, report = item.get_closest_marker("fault"), made.get_result()
    if row is not None:
        report.fault = (*row.args, item.callspec.id if hasattr(item, "callspec") else "")


def pytest_terminal_summary(terminalreporter, config):
    if not config.getoption("--all-faults"):
        return
    rows: dict[tuple[str, str, str], list[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            if hasattr(report, "fault") and (report.when == "call" or outcome != "passed"):
                rows.setdefault(report.fault[:3], []).append(outcome)
    terminalreporter.section("faults")
    terminalreporter.write_line("| fault | done | should | did |\n|---|---|---|---|")
    for (name, done, should), outcomes in sorted(rows.items()):
        did = ", ".join(f"{outcomes.count(one)} {one}" for one in dict.fromkeys(outcomes))
        terminalreporter.write_line(f"| {name} | {done} | {should} | {did} |")
