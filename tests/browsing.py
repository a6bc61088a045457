"""Pages in a real browser, for tests: how one is opened, and what axe-core has to say of it.

Needs Chromium (`apt-get install chromium`); where it is absent these tests fail, because a page that nobody opened is not tested.
"""

import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import axe_playwright_python
import uvicorn
from conftest import PATIENCE_S, WSBENCH, child

from wsbench.report import document
from wsbench.report.web import app

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
AXE_RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "these tests need Chromium: apt-get install chromium"
    return found


def axe_complaints(page) -> list:
    """What axe-core finds wrong with a page; its policy must have been set aside (`bypass_csp`), for axe is a script."""
    page.evaluate(AXE)
    found = page.evaluate("rules => axe.run(document, rules)", AXE_RULES)
    assert len(found["passes"]) > 10
    return [(one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in found["violations"]]


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which the real command shows a folder's campaigns."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*WSBENCH, "serve", str(folder), "--port", str(port)]
    with child(command, stdout=subprocess.PIPE, text=True) as serving:
        assert str(port) in serving.stdout.readline()
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
        serving.terminate()


@contextmanager
def shown(folder: Path) -> Iterator[str]:
    """As `served`, by a thread of this process."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app.app([folder], app.names_of("127.0.0.1")), log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


class Visit:
    """A page that was opened, with everything it said and asked for."""

    def __init__(self, browser, run, address="", **options):
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto((run.path / document.FILE).resolve().as_uri() + address)
        if options.get("java_script_enabled", True):
            self.page.wait_for_selector("html[data-ready]")

    def draw_everything(self):
        """Opens every section and scrolls to every area of figures, until each is live."""
        self.page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
        for area in self.page.locator("[data-figures]").all():
            area.scroll_into_view_if_needed()
            self.page.wait_for_function("area => area.dataset.state === 'live'", arg=area.element_handle())
        return self

    def count(self, selector):
        return self.page.locator(selector).count()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()
