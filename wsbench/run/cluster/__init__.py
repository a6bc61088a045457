"""A campaign or a load on several hosts, over Ray. Each host runs the code of a run on one machine.

`hosts` reads cluster.toml. `onhost` runs on each host; `remote` calls it. `clocks` measures clock offsets between hosts, and
`instants` corrects the times in their files. `remotes` and `engines` are a trial's server, samples and engines as seen from
here, `testbed` combines them, and `commands` starts and stops a cluster. Only `remote` imports Ray, an optional extra; no
module outside this package imports it.
"""
