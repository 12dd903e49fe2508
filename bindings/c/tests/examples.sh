#!/bin/sh
# Runs an example as a user would, in its own directory of buses: examples.sh NAME FOLDER-OF-PROGRAMS.
set -eu
programs=$2
TORONI_DIR=$(mktemp -d /dev/shm/toroni-example-XXXXXX)
export TORONI_DIR
others=
clean_up() {
    for other in $others; do kill "$other" 2>/dev/null || true; done
    rm -rf "$TORONI_DIR"
}
trap clean_up EXIT

# until_true CONDITION...: waits until the command succeeds, for at most a minute.
until_true() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || { echo "waited a minute in vain for: $*" >&2; exit 1; }
        sleep 0.1
    done
}

case $1 in
publish_c | publish_cpp)
    "$programs/subscribe${1#publish}" demo 'plant/**' >"$TORONI_DIR/out" 2>"$TORONI_DIR/err" &
    others=$!
    until_true grep -q subscribed "$TORONI_DIR/err"
    "$programs/$1" demo plant/boiler/temperature 351.2
    until_true grep -q '^plant/boiler/temperature 351.2$' "$TORONI_DIR/out"
    # If a signal ends it while it waits, it exits with 0.
    kill -TERM "$others"
    wait "$others"
    ;;
state_c | state_cpp)
    "$programs/$1" demo >"$TORONI_DIR/early" &
    early=$!
    others=$early
    until_true grep -q '^no setpoint yet$' "$TORONI_DIR/early"
    "$programs/$1" demo 340
    "$programs/$1" demo 350
    # The publishers have ended. A late subscriber has the state at once.
    "$programs/$1" demo >"$TORONI_DIR/late" &
    others="$others $!"
    until_true grep -q '^is 350$' "$TORONI_DIR/late"
    "$programs/$1" demo 360
    "$programs/$1" demo ''
    for followed in early late; do until_true grep -q '^no setpoint$' "$TORONI_DIR/$followed"; done
    kill -TERM $others
    for other in $others; do wait "$other"; done
    printf 'no setpoint yet\nbecomes 340\nbecomes 350\nbecomes 360\nno setpoint\n' | cmp - "$TORONI_DIR/early"
    printf 'is 350\nbecomes 360\nno setpoint\n' | cmp - "$TORONI_DIR/late"
    ;;
logger)
    "$programs/logger" daemon "$TORONI_DIR/log.txt" notice 2>"$TORONI_DIR/err" &
    others=$!
    until_true grep -q logging "$TORONI_DIR/err"
    "$programs/logger" log mail debug not written
    "$programs/logger" log mail err the disk is full
    until_true grep -q 'mail/err .*: the disk is full$' "$TORONI_DIR/log.txt"
    mv "$TORONI_DIR/log.txt" "$TORONI_DIR/log.1"
    kill -HUP "$others"
    until_true test -e "$TORONI_DIR/log.txt"
    "$programs/logger" log kern emerg panic
    until_true grep -q 'kern/emerg .*: panic$' "$TORONI_DIR/log.txt"
    kill -TERM "$others"
    wait "$others"
    # Not with `!`, whose result set -e ignores.
    if grep 'not written' "$TORONI_DIR/log.1" "$TORONI_DIR/log.txt"; then exit 1; fi
    ;;
images)
    "$programs/images" edges 2>"$TORONI_DIR/edges" &
    others=$!
    "$programs/images" viewer 5 >"$TORONI_DIR/out" 2>"$TORONI_DIR/viewer" &
    viewer=$!
    others="$others $viewer"
    until_true grep -q ready "$TORONI_DIR/edges"
    until_true grep -q ready "$TORONI_DIR/viewer"
    # Messages that are not frames are ignored.
    "$programs/publish_cpp" images camera/edges short
    "$programs/publish_cpp" images camera/frame short
    "$programs/images" camera 100000 30 &
    others="$others $!"
    wait "$viewer"
    # With each frame the square moves by 8 and 4, and its edge starts at its corner.
    awk '/^frame/ { n = $2 + 0; if ($5 != 1 + n * 8 % 1700 || $6 != 1 + n * 4 % 850) { print; bad = 1 } count++ }
         END { exit bad || count != 5 }' "$TORONI_DIR/out"
    tail -n 1 "$TORONI_DIR/out"
    ;;
*)
    echo "no such example: $1" >&2
    exit 2
    ;;
esac
