#!/bin/sh
# Installs a build, packs it for Debian, and compiles programs against both results, as users would:
# installed.sh FOLDER-OF-THE-BUILD.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1
work=$(mktemp -d /dev/shm/toroni-installed-XXXXXX)
trap 'rm -rf "$work"' EXIT
export TORONI_DIR="$work/buses"
mkdir "$TORONI_DIR"
flags='-std=c11 -Wall -Wextra -pedantic -Werror'

# try PROGRAM...: publishes a message with the program.
try() {
    "$@" demo plant/boiler/temperature 351.2
    echo "ok: $1"
}

# use ROOT PREFIX: compiles with pkg-config and with CMake against the library that is installed in ROOT/PREFIX.
use() {
    root=$1 prefix=$2
    library=$(dirname "$(find "$root$prefix" -name libtoroni.so)")
    export PKG_CONFIG_PATH="$library/pkgconfig"
    # Otherwise pkg-config would omit the system's own folders.
    export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
    # shellcheck disable=SC2046,SC2086
    cc $flags "$here/../examples/publish.c" $(pkg-config --cflags --libs toroni) -o "$work/shared"
    LD_LIBRARY_PATH=$library try "$work/shared"
    # shellcheck disable=SC2046,SC2086
    cc $flags "$here/../examples/publish.c" $(pkg-config --cflags toroni) -Wl,-Bstatic \
        $(pkg-config --libs --static toroni | sed 's/-ltoroni/-ltoroni -Wl,-Bdynamic/') -o "$work/static"
    try "$work/static"
    # Not with `!`, whose result set -e ignores.
    if ldd "$work/static" | grep toroni; then
        echo "the program that is linked with the static library needs the shared one" >&2
        exit 1
    fi
    ldd "$work/shared" | grep -q 'libtoroni\.so\.0'
    fully_static
    rm -rf "$work/user"
    cmake -S "$here/user" -B "$work/user" -DCMAKE_PREFIX_PATH="$root$prefix" >"$work/log" 2>&1 &&
        cmake --build "$work/user" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    try "$work/user/publish_shared"
    try "$work/user/publish_static"
    try "$work/user/publish_cpp"
}

# Builds programs without any shared library: the whole test in C (except the separate programs), and an example in C++.
fully_static() {
    tests=$(find "$here" -name "*.c" ! -name dlclose.c ! -name measure.c)
    # The linker warns of three functions for names of users and groups, and of one for hosts. None of them is called.
    # shellcheck disable=SC2046,SC2086
    {
        cc $flags -static $tests $(pkg-config --static --cflags --libs toroni) -o "$work/fully_static" &&
            c++ -std=c++17 -static "$here/../../cpp/examples/publish.cpp" $(pkg-config --static --cflags --libs toroni) \
                -o "$work/fully_static_cpp"
    } >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    for program in fully_static fully_static_cpp; do
        file -L "$work/$program" | grep -q 'statically linked'
    done
    "$work/fully_static" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    echo "ok: $work/fully_static, $(tail -n 1 "$work/log")"
    try "$work/fully_static_cpp"
}

# The system libraries that the static library needs are those that rustc lists, without those that compilers link by
# themselves.
libraries() { tr ' ' '\n' | grep '^-l' | grep -vE '^-l(c|gcc_s|toroni)$' | sort -u; }
echo | rustc --crate-type staticlib --print native-static-libs -o "$work/empty.a" - 2>&1 |
    sed -n 's/.*native-static-libs: //p' | libraries >"$work/wanted"
test -s "$work/wanted"

echo "== installed with a prefix"
cmake --install "$build" --prefix "$work/prefix" >/dev/null
PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name toroni.pc)") pkg-config --static --libs toroni | libraries |
    diff "$work/wanted" - || { echo "toroni.pc does not name the libraries that rustc lists" >&2; exit 1; }
use "$work" /prefix

echo "== packed for Debian"
(cd "$build" && rm -f ./*.deb ./*.ddeb && cpack -G DEB >"$work/log" 2>&1) || { cat "$work/log"; exit 1; }
for package in "$build"/libtoroni0_*.deb "$build"/libtoroni-dev_*.deb; do
    echo "$(basename "$package"): $(dpkg-deb -f "$package" Depends)"
    dpkg-deb -x "$package" "$work/root"
done
dpkg-deb -f "$build"/libtoroni0_*.deb Depends | grep -q libc6
dpkg-deb -I "$build"/libtoroni0_*.deb | grep -q shlibs
for package in libtoroni0 libtoroni-dev; do
    test -e "$work/root/usr/share/doc/$package/copyright"
    grep -q '^rustix [0-9.]*: ' "$work/root/usr/share/doc/$package/third-party.txt"
done
use "$work/root" /usr

echo "== symbols in their own package"
library=$(find "$work/root" -name 'libtoroni.so.0.*')
if readelf -SW "$library" "$(find "$work/root" -name libtoroni.a)" | grep -qE '\.debug_(info|line)'; then
    echo "the package is not stripped" >&2
    exit 1
fi
dpkg-deb -x "$build"/libtoroni0-dbgsym_*.ddeb "$work/symbols"
id=$(readelf -nW "$library" | sed -n 's/.*Build ID: //p')
readelf -SW "$work/symbols/usr/lib/debug/.build-id/$(echo "$id" | cut -c 1-2)/$(echo "$id" | cut -c 3-).debug" |
    grep -q '\.debug_line'
echo "ok: $(wc -c <"$library") bytes, build ID $id"
