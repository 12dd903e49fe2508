/* The observer of the conformance test in C; bindings/conformance/README.md describes its arguments and output. */
#include "toroni.h"

#include <stdio.h>
#include <stdlib.h>

static void check(int status) {
    if (status == TORONI_OK) return;
    fprintf(stderr, "%s\n", toroni_error_message());
    exit(1);
}

static void show(const char *what, const char *name, int alive, int stopped, int dumping) {
    printf("%s\t%s\t%d\t%d\t%d\n", what, name, alive == 1, stopped != 0, dumping != 0);
}

int main(int count, char **arguments) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    const toroni_lock_owner *owner;
    toroni_bus *bus;
    toroni_stats *stats;
    size_t i;

    if (count != 2) return fputs("observe BUS\n", stderr), 1;
    options.existence = TORONI_OPEN_EXISTING;
    check(toroni_bus_open(arguments[1], &options, &bus));
    check(toroni_bus_take_stats(bus, &stats));
    owner = toroni_stats_lock_owner(stats);
    if (owner != NULL) show("lock", "-", owner->alive, owner->stopped, owner->dumping);
    for (i = 0; i < toroni_stats_publisher_count(stats); i++) {
        const toroni_publisher_info *one = toroni_stats_publisher(stats, i);
        show("publisher", one->name, one->alive, one->stopped, one->dumping);
    }
    for (i = 0; i < toroni_stats_subscriber_count(stats); i++) {
        const toroni_subscriber_info *one = toroni_stats_subscriber(stats, i);
        show("subscriber", one->name, one->alive, one->stopped, one->dumping);
    }
    toroni_stats_close(stats);
    toroni_bus_close(bus);
    return 0;
}
