"""Engines on many hosts for one load (`wsbench load --cluster`), over Ray: `hosts` is what the user wrote, `clocks` how far the
hosts' clocks are apart, `remote` what runs on a host, `engines` what the trial sees of it, `commands` how a cluster comes up.

Only `remote` imports Ray, an optional extra; nothing outside this room imports it. The load's plan, engine, run directory and
merging are those of one host: only the shard's number says where a process ran.
"""
