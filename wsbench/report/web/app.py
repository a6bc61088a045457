"""The pages, served: read only, on loopback unless told otherwise, each campaign as it is at that moment.

What a report says came from servers that may be hostile. Pages of ours run no script but our file; a report is sandboxed, so that
whatever is in it has no origin and can ask nothing of this server.
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
    """`hosts` are the names by which it may be asked, so that no other site can make a browser read it (DNS rebinding)."""

    def campaign_of(request: Request) -> Campaign:
        """Looked up among those that exist: no path is ever made of what was asked."""
        asked = f"{request.path_params['folder']}/{request.path_params['name']}"
        for one in find(folders):
            if one.id == asked:
                return one
        raise HTTPException(404, f"no campaign is called {asked}")

    def top(request: Request) -> Response:
        return page(pages.listing(*look(folders), SERVED, request.query_params.get("q", "")))

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
            raise HTTPException(404, f"no such download; there are: {', '.join(DOWNLOADS)}")
        results = campaign_of(request).results
        made = export.FORMATS[form](export.Asked(results, [], []))
        return Response(made, media_type=DOWNLOADS[form], headers=PAGE)

    def overlaid(request: Request) -> Response:
        asked, known = request.query_params.getlist("run"), {one.id: one for one in find(folders)}
        chosen = [known[name] for name in dict.fromkeys(asked) if name in known]
        if not chosen:
            raise HTTPException(404, "none of these campaigns is here")
        return page(pages.overlaid("Campaigns over each other", chosen, request.query_params.get("metric"), SERVED))

    def of_experiment(request: Request) -> Response:
        name = request.path_params["experiment"]
        chosen = [one for one in find(folders) if one.experiment == name]
        if not chosen:
            raise HTTPException(404, f"no campaign of {name} is here")
        return page(pages.overlaid(f"Campaigns of {name}", chosen, request.query_params.get("metric"), SERVED))

    def history(request: Request) -> Response:
        name = request.path_params["experiment"]
        chosen = [one for one in find(folders) if one.experiment == name]
        if not chosen:
            raise HTTPException(404, f"no campaign of {name} is here")
        return page(pages.over_time(chosen, name, request.query_params.get("metric"), SERVED))

    def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in pages.ASSETS:
            raise HTTPException(404)
        return FileResponse(pages.HERE / name, headers=PAGE)

    made = Starlette(
        routes=[
            Route("/", top),
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
            UserError: lambda _, error: Response(f"it cannot be read: {error}", 422, headers=PAGE),
        },
    )
    made.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    return made


def page(text: str, more: dict[str, str] | None = None) -> HTMLResponse:
    return HTMLResponse(text, headers=PAGE | (more or {}))


def serve(folders: list[Path], host: str, port: int) -> None:
    """Until Ctrl-C."""
    # "[" is what Starlette makes of an address of IPv6, which no name can be bound to that is not asked for.
    hosts = ["*"] if host in ("0.0.0.0", "::") else ["127.0.0.1", "localhost", "[", host]
    uvicorn.run(app(folders, hosts), host=host, port=port, log_level="warning", access_log=False)
