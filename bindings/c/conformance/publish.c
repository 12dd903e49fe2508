/* The publisher of the conformance test in C; bindings/conformance/README.md describes its arguments and output. */
#define _XOPEN_SOURCE 700

#include "toroni.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUNDLE 16

static void check(int status) {
    if (status == TORONI_OK) return;
    fprintf(stderr, "%s\n", toroni_error_message());
    exit(1);
}

static uint64_t id, size;

static size_t length_of(uint64_t number) { return (size_t)(16 + number * 37 % (size - 15)); }

static int write_message(void *data, size_t length, void *context) {
    unsigned char *bytes = data;
    const uint64_t number = *(const uint64_t *)context;
    size_t i;
    for (i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(id >> 8 * i);
        bytes[8 + i] = (unsigned char)(number >> 8 * i);
    }
    for (i = 16; i < length; i++) bytes[i] = (unsigned char)(id * 17 + number * 31 + i * 7);
    return 0;
}

int main(int count, char **arguments) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus;
    toroni_publisher *publisher;
    unsigned char *buffer;
    const char *mode;
    uint64_t wanted, number = 0;
    char line[80];

    if (count != 7) {
        fputs("publish BUS TOPIC ID COUNT SIZE MODE\n", stderr);
        return 1;
    }
    id = strtoull(arguments[3], NULL, 10);
    wanted = strtoull(arguments[4], NULL, 10);
    size = strtoull(arguments[5], NULL, 10);
    mode = arguments[6];
    if (size < 16) return fputs("SIZE is at least 16\n", stderr), 1;
    if (wanted == 0) wanted = UINT64_MAX;
    buffer = malloc(BUNDLE * size);
    if (buffer == NULL) return fputs("no memory\n", stderr), 1;

    options.existence = TORONI_OPEN_EXISTING;
    check(toroni_bus_open(arguments[1], &options, &bus));
    check(toroni_bus_publisher(bus, arguments[2], NULL, &publisher));
    puts("ready");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) return fputs("no line on stdin\n", stderr), 1;

    while (number < wanted) {
        if (strcmp(mode, "in-place") == 0) {
            check(toroni_publish_in_place(publisher, length_of(number), write_message, &number));
            number++;
        } else if (strcmp(mode, "one") == 0) {
            write_message(buffer, length_of(number), &number);
            check(toroni_publish(publisher, buffer, length_of(number)));
            number++;
        } else if (strcmp(mode, "try") == 0) {
            int status;
            write_message(buffer, length_of(number), &number);
            while ((status = toroni_try_publish(publisher, buffer, length_of(number))) == TORONI_FULL ||
                   status == TORONI_BUSY) {
                const struct timespec pause = {0, 1000000};
                nanosleep(&pause, NULL);
            }
            check(status);
            number++;
        } else {
            toroni_bytes bundle[BUNDLE];
            size_t in_bundle = 0, published;
            for (; in_bundle < BUNDLE && number < wanted; in_bundle++, number++) {
                unsigned char *at = buffer + in_bundle * size;
                write_message(at, length_of(number), &number);
                bundle[in_bundle].data = at;
                bundle[in_bundle].length = length_of(number);
            }
            if (strcmp(mode, "batch") == 0) check(toroni_publish_batch(publisher, bundle, in_bundle));
            else if (strcmp(mode, "burst") == 0)
                check(toroni_publish_burst(publisher, bundle, in_bundle, &published));
            else return fputs("MODE is one, try, batch, burst or in-place\n", stderr), 1;
        }
    }
    printf("published\t%llu\n", (unsigned long long)number);
    free(buffer);
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
    return 0;
}
