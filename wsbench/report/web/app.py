"""The web server of the pages: read-only, on loopback by default, with the current state of each campaign.

A report's content came from servers that may be hostile. Our pages run only our script file. A report is sandboxed: it has no
origin and cannot send requests to this server.
"""

from __future__ import annotations

from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from wsbench.analysis.campaigns import Campaign, find, look
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
DOWNLOADS = {"json": "application/json", "csv": "text/csv"}


def app(folders: list[Path], hosts: list[str]) -> Starlette:
    """`hosts` are the allowed host names: no other site can make a browser read these pages (DNS rebinding)."""

    def campaign_of(request: Request) -> Campaign:
        """The requested campaign, looked up among the existing ones: no path is built from the request."""
        asked = f"{request.path_params['folder']}/{request.path_params['name']}"
        for one in find(folders):
            if one.id == asked:
                return one
        raise HTTPException(404, f"no campaign {asked}")

    def top(request: Request) -> Response:
        return page(pages.listing(*look(folders), SERVED, request.query_params.get("q", "")))

    def claims(request: Request) -> Response:
        return page(pages.claims(find(folders), SERVED))

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
        return page(pages.overlaid("Overlay of campaigns", chosen, request.query_params.get("metric"), SERVED))

    def of_experiment(request: Request) -> Response:
        name = request.path_params["experiment"]
        chosen = [one for one in find(folders) if one.experiment == name]
        if not chosen:
            raise HTTPException(404, f"no campaign of {name}")
        return page(pages.overlaid(f"Campaigns of {name}", chosen, request.query_params.get("metric"), SERVED))

    def history(request: Request) -> Response:
        name = request.path_params["experiment"]
        chosen = [one for one in find(folders) if one.experiment == name]
        if not chosen:
            raise HTTPException(404, f"no campaign of {name}")
        return page(pages.over_time(chosen, name, request.query_params.get("metric"), SERVED))

    def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in pages.ASSETS:
            raise HTTPException(404)
        return FileResponse(pages.HERE / name, headers=PAGE)

    made = Starlette(
        routes=[
            Route("/", top),
            Route("/claims", claims),
            Route("/assets/{name}", asset),
            Route("/campaign/{folder}/{name}/", campaign),
            Route("/campaign/{folder}/{name}/live", live),
            Route("/campaign/{folder}/{name}/report.html", report),
            Route("/campaign/{folder}/{name}/campaign.{form}", download),
            Route("/overlay", overlaid),
            Route("/overlay/{experiment}", of_experiment),
            Route("/history/{experiment}", history),
        ],
        exception_handlers={
            HTTPException: lambda _, error: Response(error.detail, error.status_code, headers=PAGE),
            UserError: lambda _, error: Response(f"cannot be read: {error}", 422, headers=PAGE),
        },
    )
    made.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    return made


def page(text: str, more: dict[str, str] | None = None) -> HTMLResponse:
    return HTMLResponse(text, headers=PAGE | (more or {}))


def serve(folders: list[Path], host: str, port: int) -> None:
    """Serves the pages until Ctrl-C."""
    # Starlette reduces an IPv6 address to "[", which cannot be a registered host name.
    hosts = ["*"] if host in ("0.0.0.0", "::") else ["127.0.0.1", "localhost", "[", host]
    uvicorn.run(app(folders, hosts), host=host, port=port, log_level="warning", access_log=False)
