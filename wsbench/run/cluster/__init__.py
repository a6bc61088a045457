"""A campaign or a load on many hosts, over Ray: the run on one machine, elsewhere.

`hosts` is what the user wrote. `onhost` is what runs there, with the code of a run on one machine, and `remote` how it is called;
`clocks` is how far the hosts' clocks are apart, `instants` where such stand in files. `remotes` and `engines` are a trial's server,
samples and engines as seen from here, `elsewhere` makes a place of them, `commands` brings a cluster up.

Only `remote` imports Ray, an optional extra; nothing outside this room imports it.
"""
