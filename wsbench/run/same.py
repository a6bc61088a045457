"""What all trials of a campaign must share: the experiment's file, the servers as they were built, the engine and the machine.

`began` reads it when the campaign begins; `differences` says in words what is otherwise when the campaign is resumed.
"""

from __future__ import annotations

from wsbench.records.errors import UserError
from wsbench.records.files import read_text
from wsbench.records.frozen import toml_of
from wsbench.records.hosts import MachineRecord
from wsbench.records.rundir import Artefacts, Began, RunFolder, ServerRow
from wsbench.run.testbed import Testbed
from wsbench.servers import catalogue
from wsbench.servers.catalogue import Variant
from wsbench.servers.settings import RuntimeTable

#: The properties of a machine on which every number depends.
MACHINE = ("cpu_model", "cpu_id", "cpus", "kernel")
#: Of a value that has changed, the first letters.
SHOWN = 60
UNRECORDED = "what it began with was not recorded, as it is by this version of wsbench"


def began(text: str, rows: list[tuple[Variant, ServerRow]], table: RuntimeTable, testbed: Testbed) -> Began:
    """What the trials of a campaign of these servers share. `text`: its experiment.toml."""
    known = {variant.name: testbed.artefacts(variant, table, row) for variant, row in rows if row.skipped is None}
    return Began(
        experiment=text,
        engines=testbed.programs(),
        artefacts={name: artefacts for name, artefacts in known.items() if artefacts is not None},
    )


def differences(run: RunFolder, testbed: Testbed) -> list[str]:
    """What is not as it was when the campaign began, each in a few words. Empty if its trials can go on."""
    record, found = run.campaign, []
    if (before := record.began) is None:
        run.read("experiment.toml")
        found.append(UNRECORDED)
    else:
        found += [f"experiment.toml: {said}" for said in of_text(before.experiment, read_text(run.experiment_toml))]
        table = RuntimeTable.model_validate(toml_of(before.experiment, run.experiment_toml).get("runtime", {}))
        rows = catalogue.with_own(run.own_servers)
        named = [(name, catalogue.named(name, rows, table)) for name in record.servers]
        for name, variant in named:
            if variant is not None:
                is_now = testbed.artefacts(variant, table)
                found += [f"{name}: {said}" for said in _of_server(before.artefacts.get(name), is_now)]
        found += _of_engines(before.engines, testbed.programs())
    serves, hosts = testbed.machines()
    found += [f"the machine: {said}" for said in _of_machine(run.machine, serves)]
    were = {row.key.name: row.machine for row in run.hosts}
    for row in hosts:
        if row.machine != serves and row.key.name in were:
            found += [f"host {row.key.name}: {said}" for said in _of_machine(were[row.key.name], row.machine)]
    return found


def of_text(before: str, after: str) -> list[str]:
    """What a changed experiment has otherwise, key by key."""
    if before == after:
        return []
    were = _flat(toml_of(before, "experiment.toml"))
    try:
        are = _flat(toml_of(after, "experiment.toml"))
    except UserError as error:
        return [str(error)]
    changed = [key for key in were | are if were.get(key) != are.get(key)]
    return [_changed(key, were.get(key), are.get(key)) for key in changed] or ["its comments or spaces have changed"]


def _flat(table: dict, before: str = "") -> dict[str, object]:
    found = {}
    for key, value in table.items():
        found |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {before + key: value}
    return found


def _of_server(before: Artefacts | None, after: Artefacts | None) -> list[str]:
    if before is None or after is None:
        return [] if before == after else ["it was started by wsbench, and ran already" if before is None else "it runs already"]
    found = [_changed("version report", before.receipt, after.receipt)] if before.receipt != after.receipt else []
    if before.runtime != after.runtime:
        found.append(_changed("runtime", before.runtime, after.runtime))
    if before.sources != after.sources:
        found.append("its sources or commands have changed")
    if before.made != after.made:
        found.append("it was built anew")
    return found


def _of_engines(before: dict[str, str], after: dict[str, str]) -> list[str]:
    hosts = [host for host in before | after if before.get(host) != after.get(host)]
    return [_changed(f"the engine{f' on {host}' if host else ''}", before.get(host), after.get(host)) for host in hosts]


def _of_machine(before: MachineRecord, after: MachineRecord) -> list[str]:
    were, are = before.model_dump(include=set(MACHINE)), after.model_dump(include=set(MACHINE))
    # An older run has no `cpu_id`.
    return [_changed(key, were[key], are[key]) for key in MACHINE if were[key] != are[key] and (key, were[key]) != ("cpu_id", None)]


def _changed(what: str, before: object, after: object) -> str:
    return f"{what} {_shown(before)} → {_shown(after)}"


def _shown(value: object) -> str:
    text = "none" if value is None else " ".join(str(value).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
