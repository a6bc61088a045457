#!/bin/sh
# Environment: HOST, PORT, THREADS.
export GOMAXPROCS="${THREADS:-}"
exec build/server --config server.conf
