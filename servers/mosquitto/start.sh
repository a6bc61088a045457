#!/bin/sh
# Becomes the broker, with a configuration made from the environment: HOST, PORT.
# `start.sh --version` prints the broker's version.
PATH="$PATH:/usr/sbin"
if [ "${1:-}" = --version ]; then
    mosquitto -h | head -n 1
    exit
fi
exec mosquitto -c /dev/fd/3 3<<END
user $(id -un)
log_dest stderr
log_type error
log_type warning

listener $PORT $HOST
protocol websockets
socket_domain ipv4
allow_anonymous true

# The broker does not start with a WebSocket listener alone.
listener 0 build/$PORT.sock
END
