#!/bin/sh
# Start one node that is broker and controller, configured by environment variables. It formats its
# directory on the first start. docs/deployment.md describes the variables.
set -eu

: "${NODE_ID:=1}"
: "${HOST:=$(hostname)}"                     # name under which the other nodes reach this one
: "${VOTERS:=$NODE_ID@$HOST:9093}"           # id@host:port of every node, separated by commas
: "${EXTERNAL:=localhost:9094}"              # address under which clients outside reach this node
: "${DATA:=/var/lib/sparkraft}"
: "${LISTEN:=}"                              # address to listen on; empty: all
: "${HTTP:=127.0.0.1:9644}"                  # /health and /metrics
: "${CLUSTER_ID:?set it to the output of: sparkraft storage random-uuid}"

voters=$(echo "$VOTERS" | tr ',' '\n' | wc -l)
replicas=$((voters < 3 ? 1 : 3))
config=$DATA/server.properties

mkdir -p "$DATA"
cat > "$config" <<EOF
process.roles=broker,controller
node.id=$NODE_ID
controller.quorum.voters=$VOTERS
listeners=INTERNAL://$LISTEN:9092,CONTROLLER://$LISTEN:9093,EXTERNAL://$LISTEN:9094
advertised.listeners=INTERNAL://$HOST:9092,EXTERNAL://$EXTERNAL
listener.security.protocol.map=INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT
inter.broker.listener.name=INTERNAL
controller.listener.names=CONTROLLER
log.dirs=$DATA/data
default.replication.factor=$replicas
min.insync.replicas=$((replicas == 1 ? 1 : 2))
offsets.topic.replication.factor=$replicas
transaction.state.log.replication.factor=$replicas
transaction.state.log.min.isr=$((replicas == 1 ? 1 : 2))
sparkraft.http.listener=$HTTP
EOF

if [ ! -e "$DATA/data/meta.properties" ]; then
  sparkraft storage format -t "$CLUSTER_ID" -c "$config"
fi
exec sparkraft server-start "$config" "$@"
