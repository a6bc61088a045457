#!/bin/sh
# start.sh stomp|mqtt: a RabbitMQ node of its own, which leaves nothing behind. Environment: HOST, PORT.
# `start.sh --version` prints the versions of RabbitMQ and Erlang.
set -u
home=$(echo /usr/lib/rabbitmq/lib/rabbitmq_server-*)
if [ "$1" = --version ]; then
    exec erl -noinput -pa "$home"/plugins/rabbit-*/ebin -eval '
        ok = application:load(rabbit), {ok, Version} = application:get_key(rabbit, vsn),
        io:format("RabbitMQ ~s, Erlang/OTP ~s~n", [Version, erlang:system_info(otp_release)]), halt().'
fi

end() {
    trap '' TERM INT
    # RabbitMQ removes the file early in its shutdown.
    beam=$(cat "$folder/pid" 2>/dev/null)
    kill "$node" 2>/dev/null
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        kill -0 "$node" 2>/dev/null || break
        sleep 0.2
    done
    [ -n "$beam" ] && kill -9 "$beam" 2>/dev/null
    kill -9 "$names"
    wait
    rm -rf --one-file-system "$folder"
    exit 0
}

folder=$(mktemp -d)
# Two free ports of the loopback: for Erlang's name service, and for the node's command-line tools.
read -r ERL_EPMD_PORT RABBITMQ_DIST_PORT <<END
$(erl -noinput -eval '
    Ports = [begin {ok, S} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]), {ok, P} = inet:port(S), P end || _ <- [1, 2]],
    io:format("~w ~w~n", Ports), halt().')
END
epmd -address 127.0.0.1 -port "$ERL_EPMD_PORT" &
names=$!
echo "[rabbitmq_web_$1]." > "$folder/enabled_plugins"
cat > "$folder/rabbitmq.conf" <<END
listeners.tcp = none
$1.listeners.tcp = none
web_$1.tcp.ip = $HOST
web_$1.tcp.port = $PORT
web_$1.ws_opts.idle_timeout = 7200000
loopback_users = none
log.file = false
log.console = true
log.console.level = warning
END
export ERL_EPMD_PORT RABBITMQ_DIST_PORT ERL_EPMD_ADDRESS=127.0.0.1 HOME="$folder"
export RABBITMQ_NODENAME="wsbench-$PORT@localhost" RABBITMQ_NODE_IP_ADDRESS=127.0.0.1
export RABBITMQ_CONF_ENV_FILE="$folder/none" RABBITMQ_CONFIG_FILE="$folder/rabbitmq.conf"
export RABBITMQ_ADVANCED_CONFIG_FILE="$folder/none" RABBITMQ_ENABLED_PLUGINS_FILE="$folder/enabled_plugins"
export RABBITMQ_MNESIA_BASE="$folder/data" RABBITMQ_LOG_BASE="$folder/log" RABBITMQ_PID_FILE="$folder/pid"
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}'
trap end TERM INT
/usr/lib/rabbitmq/bin/rabbitmq-server &
node=$!
wait "$node"
end
