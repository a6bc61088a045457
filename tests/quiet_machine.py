"""wsbench as on a machine where nothing else runs, so that a test may ask for a decision on any: `quiet_machine.py WORDS…`."""

from dataclasses import replace

from wsbench import cli
from wsbench.host import machine
from wsbench.metrics import ladder, quiet, slices
from wsbench.metrics.limits import LIMITS, NEVER

WAITS = ("wait_share", "wait_p50", "wait_p99", "start_spread_s", "own_part")
for name in (*WAITS, "steal", "foreign_cpu", "others", "disturbed_turns", "crowd", "little", "rising"):
    LIMITS[name] = replace(LIMITS[name], suspect=NEVER, invalid=NEVER)
slices.disturbance = lambda *_: None
quiet.disturbances = lambda *_: []
ladder.Rung.is_limited = lambda *_: False
# A worker that polls waits for long where it shares its CPU with other programs.
machine.Placement.apart = property(lambda _: False)
cli.main()
