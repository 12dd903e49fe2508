#!/bin/sh
# Compiles and runs the C and C++ programs that a README shows: readme.sh README FOLDER-OF-HEADERS-OF-C
# FOLDER-OF-HEADERS-OF-C++ FOLDER-OF-THE-LIBRARY. The README's first block in a language publishes, the second one
# subscribes.
set -eu
readme=$1 c=$2 cpp=$3 library=$4
work=$(mktemp -d /dev/shm/toroni-readme-XXXXXX)
TORONI_DIR="$work/buses"
export TORONI_DIR
other=
clean_up() {
    [ -z "$other" ] || kill "$other" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT

# block LANGUAGE NUMBER: prints the lines of that block.
block() {
    awk -v fence="\`\`\`$1" -v wanted="$2" '
        $0 == "```" { inside = 0 }
        inside { print; found = 1 }
        $0 == fence && ++count == wanted { inside = 1 }
        END { exit !found }' "$readme"
}

program_of_c() {
    cat <<'END'
#include <stdio.h>
#include <toroni.h>
static inline void handle(const toroni_message *message) {
    printf("%.*s %.*s\n", (int)message->topic_length, message->topic, (int)message->payload_length,
           (const char *)message->payload);
}
int main(void) {
    toroni_bus *bus;
    toroni_publisher *publisher;
    toroni_subscriber *subscriber;
    toroni_message message;
    (void)publisher, (void)subscriber, (void)message;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
END
    block c "$1"
    echo 'return 0; }'
}

program_of_cpp() {
    printf '#include <iostream>\n#include <toroni.hpp>\nint main() {\n'
    block cpp "$1"
    echo '}'
}

# try LANGUAGE COMPILER...: compiles both blocks, and checks that the second receives what the first publishes.
try() {
    language=$1
    shift
    for number in 1 2; do
        "program_of_$language" $number >"$work/$number.$language"
        "$@" -Wall -Wextra -Werror "$work/$number.$language" -I "$c" -I "$cpp" -L "$library" -ltoroni \
            -Wl,-rpath,"$library" -o "$work/$number"
    done
    : >"$work/out"
    "$work/2" >>"$work/out" &
    other=$!
    # It does not report when it has subscribed, so publish until a message arrives, for at most a minute.
    tries=0
    until grep -q '^plant/boiler/temperature 351.2$' "$work/out"; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || { echo "no message arrives in $language" >&2; exit 1; }
        "$work/1"
        sleep 0.1
    done
    kill "$other"
    wait "$other" || true
    other=
    rm -rf "$TORONI_DIR"
    echo "ok: $language"
}

try c "${CC:-cc}" -std=c11
try cpp "${CXX:-c++}" -std=c++17
