"""The web server of the pages: read-only, on loopback by default, with the current state of each campaign.

A report's content came from servers that may be hostile. Our pages run only our script file. A report is sandboxed: it has no
origin and cannot send requests to this server.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from wsbench.analysis.campaigns import Campaign, find, look, of_readable
from wsbench.records.errors import UserError
from wsbench.report import export
from wsbench.report.web import pages

PAGE = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
REPORT = PAGE | {
    "Content-Security-Policy": (
        "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; frame-ancestors 'none'"
    )
}
SERVED = pages.Links(up="/", static=False)
#: The `Host` of a request: an address in brackets, or a name or an IPv4 address, and perhaps a port.
HOST = re.compile(r"(?:\[(?P<address>[^\]\[]+)\]|(?P<name>[^:\[\]]+))(?::\d*)?")
DOWNLOADS = {"json": "application/json", "csv": "text/csv"}


def app(folders: list[Path], names: frozenset[str]) -> Starlette:
    """The pages of the campaigns in these folders. `names`: the host names that it answers to, in lower case."""

    def campaign_of(request: Request) -> Campaign:
        """The requested campaign, looked up among the existing ones: no path is built from the request."""
        asked = f"{request.path_params['folder']}/{request.path_params['name']}"
        for one in find(folders):
            if one.id == asked:
                return one
        raise HTTPException(404, f"no campaign {asked}")

    def top(request: Request) -> Response:
        campaigns, broken = look(folders)
        query = request.query_params.get("q", "")
        return page(of_readable(lambda of: pages.listing(of, broken, SERVED, query), campaigns, broken))

    def claims(request: Request) -> Response:
        return page(of_readable(lambda of: pages.claims(of, SERVED), find(folders), []))

    def campaign(request: Request) -> Response:
        one = campaign_of(request)
        others = [other for other in find(folders) if other.experiment == one.experiment and other.id != one.id]
        return page(pages.campaign(one, others, SERVED))

    def live(request: Request) -> Response:
        one = campaign_of(request)
        return page(pages.live(one), {"X-Running": "yes" if one.running else "no"})

    def report(request: Request) -> Response:
        one = campaign_of(request)
        if one.report is None:
            raise HTTPException(404, "this campaign has no report yet")
        return FileResponse(one.report, headers=REPORT, media_type="text/html")

    def download(request: Request) -> Response:
        form = request.path_params["form"]
        if form not in DOWNLOADS:
            raise HTTPException(404, f"no such download; available: {', '.join(DOWNLOADS)}")
        results = campaign_of(request).results
        made = export.FORMATS[form](export.Asked(results, [], []))
        return Response(made, media_type=DOWNLOADS[form], headers=PAGE)

    def overlaid(request: Request) -> Response:
        asked, known = request.query_params.getlist("run"), {one.id: one for one in find(folders)}
        chosen = [known[name] for name in dict.fromkeys(asked) if name in known]
        if not chosen:
            raise HTTPException(404, "none of these campaigns exists")
        metric = request.query_params.get("metric")
        return page(of_readable(lambda of: pages.overlaid("Overlay of campaigns", of, metric, SERVED), chosen, []))

    def of_experiment(request: Request) -> Response:
        name = request.path_params["experiment"]
        chosen = [one for one in find(folders) if one.experiment == name]
        if not chosen:
            raise HTTPException(404, f"no campaign of {name}")
        metric = request.query_params.get("metric")
        return page(of_readable(lambda of: pages.overlaid(f"Campaigns of {name}", of, metric, SERVED), chosen, []))

    def history(request: Request) -> Response:
        name = request.path_params["experiment"]
        chosen = [one for one in find(folders) if one.experiment == name]
        if not chosen:
            raise HTTPException(404, f"no campaign of {name}")
        metric = request.query_params.get("metric")
        return page(of_readable(lambda of: pages.over_time(of, name, metric, SERVED), chosen, []))

    def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in pages.ASSETS:
            raise HTTPException(404)
        return FileResponse(pages.HERE / name, headers=PAGE)

    made = Starlette(
        routes=[
            Route("/", _told(top)),
            Route("/claims", _told(claims)),
            Route("/assets/{name}", asset),
            Route("/campaign/{folder}/{name}/", _told(campaign)),
            Route("/campaign/{folder}/{name}/live", _told(live)),
            Route("/campaign/{folder}/{name}/report.html", _told(report)),
            Route("/campaign/{folder}/{name}/campaign.{form}", _told(download)),
            Route("/overlay", _told(overlaid)),
            Route("/overlay/{experiment}", _told(of_experiment)),
            Route("/history/{experiment}", _told(history)),
        ],
        exception_handlers={
            HTTPException: lambda _, error: Response(error.detail, error.status_code, headers=PAGE),
        },
    )
    made.add_middleware(OwnHost, names=names)
    return made


def _told(endpoint: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """A page that a broken campaign makes impossible says so, whatever it raises."""

    @functools.wraps(endpoint)
    def answer(request: Request) -> Response:
        try:
            return endpoint(request)
        except HTTPException:
            raise
        except Exception as error:
            said = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            return Response(f"cannot be read: {said}", 422, headers=PAGE, media_type="text/plain")

    return answer


def page(text: str, more: dict[str, str] | None = None) -> HTMLResponse:
    return HTMLResponse(text, headers=PAGE | (more or {}))


class OwnHost:
    """Answers only requests for an address or one of `names`: no other site can make a browser read these pages (DNS rebinding).

    An address is safe, because a site is known to a browser by what was typed: only a name can be made to lead elsewhere.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_own(Headers(scope=scope).get("host", "")):
            await Response("unknown host name", 400, headers=PAGE, media_type="text/plain")(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_own(self, host: str) -> bool:
        found = HOST.fullmatch(host)
        if found is None:
            return False
        if found["name"] is not None and found["name"].lower().removesuffix(".") in self._names:
            return True
        try:
            ipaddress.ip_address(found["address"] or found["name"])
        except ValueError:
            return False
        return True


def names_of(host: str) -> frozenset[str]:
    """The names under which this machine may be asked if `host` is listened on: its own, if every address of it is."""
    own = (socket.gethostname(), socket.getfqdn()) if host in ("0.0.0.0", "::") else ()
    return frozenset(name.lower().removesuffix(".") for name in ("localhost", host, *own))


def serve(folders: list[Path], host: str, port: int) -> None:
    """Serves the pages until Ctrl-C."""
    uvicorn.run(app(folders, names_of(host)), host=host, port=port, log_level="warning", access_log=False)
