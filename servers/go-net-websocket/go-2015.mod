module wsbench/go-net-websocket

go 1.26

require golang.org/x/net v0.0.0-20150903014153-db8e4de5b2d6
