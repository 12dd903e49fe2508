#!/usr/bin/env bash
# Measures the proactor's examples beside programs that do the same, in turn:
#
#   http_server beside nginx, with wrk and 100 connections that are kept, on files of 1 kB and 100 kB
#   tcp_proxy   beside socat and no proxy at all, with iperf3, on 1 and 8 streams
#
#   bench/examples.sh [http|proxy] [--rounds N] [--seconds N] [--engine TORONI_PROACTOR]…
#
# Each --engine is a value of TORONI_PROACTOR, so that several configurations are measured in turn; without one, the
# environment decides. `bench/install-peers examples` installs the programs. Prints medians and their ratios to nginx and
# socat, and the single runs below.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'examples.sh: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' bench/examples.sh; }

what=both rounds=5 seconds=3 engines=()
while [ "$#" -gt 0 ]; do
    case $1 in
        http | proxy) what=$1; shift ;;
        --rounds | --seconds | --engine)
            [ "$#" -ge 2 ] || fail "$1 needs a value"
            case $1 in
                --engine) engines+=("$2") ;;
                *)
                    [[ $2 =~ ^[1-9][0-9]*$ ]] || fail "$1 $2: use a whole number from 1"
                    if [ "$1" = --rounds ]; then rounds=$2; else seconds=$2; fi ;;
            esac
            shift 2 ;;
        -h | --help) usage; exit ;;
        *) usage >&2; fail "there is no argument $1" ;;
    esac
done
[ "${#engines[@]}" -gt 0 ] || engines=("${TORONI_PROACTOR:-auto}")

PATH=$PATH:/usr/sbin
needs() {
    command -v "$1" >/dev/null || fail "there is no $1: bench/install-peers examples installs it"
}
case $what in
    http) needs wrk; needs nginx ;;
    proxy) needs iperf3; needs socat ;;
    both) for program in wrk nginx iperf3 socat; do needs "$program"; done ;;
esac

cargo build --quiet --release -p toroni-proactor --examples
built=${CARGO_TARGET_DIR:-target}/release/examples

work=$(mktemp -d)
children=()
stop() {
    for child in "${children[@]}"; do
        kill "$child" 2>/dev/null && wait "$child" 2>/dev/null || true
    done
    children=()
}
trap 'stop; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# Waits until a command succeeds, at most 30 s: the name of the program, the command.
waits_for() {
    local name=$1
    shift
    for _ in $(seq 600); do
        "$@" && return
        sleep 0.05
    done
    fail "$name does not listen after 30 s: $(cat "$work/said")"
}
is_listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; } # port

# Finds a port at which nothing listens.
free_port() {
    for _ in $(seq 100); do
        port=$((20000 + RANDOM % 12000))
        is_listening "$port" || return 0
    done
    fail "there is no free port"
}

# Starts an example with the engine $1, and sets `port`.
example() {
    # The one before has said the same, and the new one may not have opened the file yet.
    rm -f "$work/listening"
    TORONI_PROACTOR=$1 "$built/$2" "$3" >"$work/listening" 2>"$work/said" &
    children+=("$!")
    waits_for "$2" grep -qs '^listening on' "$work/listening"
    port=$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' "$work/listening")
}

record() { printf '%s\n' "$2" >>"$work/$1"; } # file, value
median() {
    sort -g "$work/$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# Prints the table of one row: its label, its unit, the contender to compare with, and all contenders.
table() {
    local label=$1 unit=$2 base=$3 contender
    shift 3
    printf '\n%s, %s: median of %s in turn\n' "$label" "$unit" "$rounds"
    for contender in "$@"; do
        awk -v name="$contender" -v value="$(median "$label.$contender")" -v base="$(median "$label.$base")" -v whose="$base" \
            -v runs="$(tr '\n' ' ' <"$work/$label.$contender")" \
            'BEGIN { printf "  %-28s %12.1f  %5.2f of %s   runs: %s\n", name, value, value / base, whose, runs }'
    done
}

# The names of the contenders that are examples: file names, too.
named() { printf '%s %s' "$1" "$(tr '/\n' '_ ' <<<"$2" | sed 's/ *$//')"; }

# --- http_server and nginx ---------------------------------------------------------------------------------------------

start_nginx() {
    free_port
    # As an expert would: a worker for each core, sendfile, connections that last as long as those of http_server, no log.
    cat >"$work/nginx.conf" <<END
daemon off;
$([ "$(id -u)" -eq 0 ] && echo 'user root;')
worker_processes auto;
pid $work/nginx.pid;
error_log $work/said;
events { worker_connections 1024; }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    client_body_temp_path $work/nginx-body;
    proxy_temp_path $work/nginx-proxy;
    fastcgi_temp_path $work/nginx-fastcgi;
    uwsgi_temp_path $work/nginx-uwsgi;
    scgi_temp_path $work/nginx-scgi;
    server { listen 127.0.0.1:$port; root $work/www; }
}
END
    nginx -c "$work/nginx.conf" 2>"$work/said" &
    children+=("$!")
    waits_for nginx is_listening "$port"
}

# Requests a second, of the file $1.
requests() {
    wrk -t2 -c100 "-d${seconds}s" "http://127.0.0.1:$port/$1" >"$work/wrk"
    ! grep -E 'Socket errors|Non-2xx' "$work/wrk" >&2 || fail "wrk counts errors"
    awk '/^Requests\/sec/ { print $2 }' "$work/wrk"
}

measure_http() {
    local files=(1000 100000) file engine contenders=(nginx)
    mkdir "$work/www"
    for file in "${files[@]}"; do head -c "$file" /dev/urandom >"$work/www/$file"; done
    for engine in "${engines[@]}"; do contenders+=("$(named http_server "$engine")"); done
    for _ in $(seq "$rounds"); do
        start_nginx
        for file in "${files[@]}"; do record "$file bytes.nginx" "$(requests "$file")"; done
        stop
        for engine in "${engines[@]}"; do
            example "$engine" http_server "$work/www"
            for file in "${files[@]}"; do
                record "$file bytes.$(named http_server "$engine")" "$(requests "$file")"
            done
            stop
        done
    done
    for file in "${files[@]}"; do table "$file bytes" requests/s nginx "${contenders[@]}"; done
}

# --- tcp_proxy and socat -----------------------------------------------------------------------------------------------

# Megabits a second to the port $1, with $2 streams.
transfer() {
    iperf3 --client 127.0.0.1 --port "$1" --parallel "$2" --time "$seconds" --json >"$work/iperf3" ||
        fail "iperf3 reports: $(grep '"error"' "$work/iperf3")"
    # The last sum of what arrived.
    awk '/"sum_received"/ { sum = 1 } sum && /"bits_per_second"/ { gsub(/[^0-9.e+]/, "", $2); print $2 / 1e6; exit }' "$work/iperf3"
}

measure_proxy() {
    local counts=(1 8) count engine server contenders=("no proxy" socat)
    for engine in "${engines[@]}"; do contenders+=("$(named tcp_proxy "$engine")"); done
    for _ in $(seq "$rounds"); do
        free_port
        server=$port
        rm -f "$work/served"
        iperf3 --server --forceflush --bind 127.0.0.1 --port "$server" >"$work/served" 2>&1 &
        children+=("$!")
        waits_for "iperf3" grep -qs listening "$work/served"
        for count in "${counts[@]}"; do
            record "streams: $count.no proxy" "$(transfer "$server" "$count")"
        done
        free_port
        # Buffers as large as those of tcp_proxy.
        socat -b 65536 "TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr,fork,nodelay" "TCP:127.0.0.1:$server,nodelay" 2>"$work/said" &
        children+=("$!")
        waits_for socat is_listening "$port"
        for count in "${counts[@]}"; do record "streams: $count.socat" "$(transfer "$port" "$count")"; done
        for engine in "${engines[@]}"; do
            example "$engine" tcp_proxy "127.0.0.1:$server"
            for count in "${counts[@]}"; do
                record "streams: $count.$(named tcp_proxy "$engine")" "$(transfer "$port" "$count")"
            done
        done
        stop
    done
    for count in "${counts[@]}"; do table "streams: $count" Mbit/s socat "${contenders[@]}"; done
}

printf 'kernel %s, %s cores, load before %s, congestion control %s\n' "$(uname -r)" "$(nproc)" \
    "$(cut -d' ' -f1-3 /proc/loadavg)" "$(cat /proc/sys/net/ipv4/tcp_congestion_control)"
[ "$what" = proxy ] || measure_http
[ "$what" = http ] || measure_proxy
