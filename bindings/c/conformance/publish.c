/* The publisher of the conformance test in C; bindings/conformance/README.md describes its arguments and output. */
#define _XOPEN_SOURCE 700

#include "toroni.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUNDLE 16
/* The number of the first message in its origin, if an inlet publishes it. */
#define FIRST 10

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

/* One of the two publishes. */
static toroni_publisher *publisher;
static toroni_exclusive *exclusive;
static toroni_exclusive_topic *topic;

static int publish(const void *data, size_t length) {
    return exclusive ? toroni_exclusive_publish(exclusive, topic, data, length, TORONI_FOREVER, NULL)
                     : toroni_publish(publisher, data, length);
}

static int publish_within(const void *data, size_t length, uint64_t timeout_ns, uint64_t *sequence) {
    return exclusive ? toroni_exclusive_publish(exclusive, topic, data, length, timeout_ns, sequence)
                     : toroni_publish_within(publisher, data, length, timeout_ns, sequence);
}

static int publish_batch(const toroni_bytes *bundle, size_t in_bundle) {
    return exclusive ? toroni_exclusive_publish_batch(exclusive, topic, bundle, in_bundle, TORONI_FOREVER, NULL)
                     : toroni_publish_batch(publisher, bundle, in_bundle, TORONI_FOREVER, NULL);
}

static int publish_burst(const toroni_bytes *bundle, size_t in_bundle) {
    return exclusive ? toroni_exclusive_publish_burst(exclusive, topic, bundle, in_bundle, TORONI_FOREVER, NULL)
                     : toroni_publish_burst(publisher, bundle, in_bundle, TORONI_FOREVER, NULL);
}

static int publish_in_place(uint64_t *number) {
    const uint64_t forever = TORONI_FOREVER;
    const size_t length = length_of(*number);
    return exclusive
               ? toroni_exclusive_publish_in_place(exclusive, topic, length, forever, write_message, number, NULL)
               : toroni_publish_in_place(publisher, length, forever, write_message, number, NULL);
}

static int clear(uint64_t *sequence) {
    return exclusive ? toroni_exclusive_clear(exclusive, topic, TORONI_FOREVER, sequence)
                     : toroni_publisher_clear(publisher, TORONI_FOREVER, sequence);
}

/* Publishes with an inlet, each message twice. */
static void bring(const toroni_bus *bus, const char *on, int is_retained, uint64_t wanted, unsigned char *buffer) {
    toroni_inlet *inlet;
    toroni_inlet_topic *inlet_topic;
    const char *const scope[2] = {"a/*", "end"};
    toroni_lost lost = {{0}, 0, 0, 0, 0, NULL, 0};
    uint64_t number = 0;
    char line[80];
    check(toroni_inlet_open(bus, NULL, &inlet));
    check(toroni_inlet_open_topic(inlet, on, &inlet_topic));
    if (is_retained) check(toroni_inlet_retain(inlet, inlet_topic));
    puts("ready");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) {
        fputs("no line on stdin\n", stderr);
        exit(1);
    }
    lost.from.source = (uint32_t)id, lost.from.series = 1, lost.from.stream = 2;
    lost.until = FIRST, lost.messages = 7;
    lost.bound = TORONI_BOUND_AT_LEAST, lost.reason = TORONI_REASON_BURST;
    lost.scope = scope, lost.scope_count = 2;
    check(toroni_inlet_publish_lost(inlet, &lost, NULL, TORONI_FOREVER));
    check(toroni_inlet_publish_lost(inlet, &lost, NULL, TORONI_FOREVER));
    while (number < wanted) {
        toroni_inlet_entry entries[BUNDLE] = {{0}};
        toroni_bytes parts[BUNDLE][2];
        size_t in_bundle = 0;
        for (; in_bundle < BUNDLE && number < wanted; in_bundle++, number++) {
            unsigned char *const message = buffer + in_bundle * size;
            toroni_inlet_entry *const entry = &entries[in_bundle];
            write_message(message, length_of(number), &number);
            parts[in_bundle][0].data = message, parts[in_bundle][0].length = 16;
            parts[in_bundle][1].data = message + 16, parts[in_bundle][1].length = length_of(number) - 16;
            entry->topic = inlet_topic, entry->parts = parts[in_bundle], entry->part_count = 2;
            entry->flags = TORONI_ENTRY_HAS_ORIGIN | TORONI_ENTRY_HAS_NUMBER | TORONI_ENTRY_HAS_TIMESTAMP;
            entry->origin.source = (uint32_t)id, entry->origin.series = 1, entry->origin.stream = 2;
            entry->origin.number = FIRST + number, entry->timestamp_ns = number, entry->number = 3 * number;
        }
        check(toroni_inlet_publish(inlet, entries, in_bundle, TORONI_FOREVER, NULL));
        check(toroni_inlet_publish(inlet, entries, in_bundle, TORONI_FOREVER, NULL));
    }
    printf("published\t%llu\n", (unsigned long long)number);
    fflush(stdout);
    toroni_inlet_topic_close(inlet_topic);
    toroni_inlet_close(inlet);
}

int main(int count, char **arguments) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_publisher_options publishing = TORONI_PUBLISHER_OPTIONS_INIT;
    toroni_bus *bus;
    unsigned char *buffer;
    const char *mode, *const prefix = "exclusive-", *const retained = "retained-";
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
    if (strncmp(mode, retained, strlen(retained)) == 0) {
        mode += strlen(retained);
        publishing.retained = 1;
    }
    if (strcmp(mode, "inlet") == 0) {
        bring(bus, arguments[2], publishing.retained, wanted, buffer);
        free(buffer);
        toroni_bus_close(bus);
        return 0;
    }
    if (strncmp(mode, prefix, strlen(prefix)) == 0) {
        mode += strlen(prefix);
        check(toroni_exclusive_open(bus, TORONI_FOREVER, &exclusive));
        check(toroni_exclusive_open_topic(exclusive, arguments[2], &publishing, &topic));
    } else {
        check(toroni_bus_publisher(bus, arguments[2], &publishing, &publisher));
    }
    puts("ready");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) return fputs("no line on stdin\n", stderr), 1;

    while (number < wanted) {
        if (strcmp(mode, "in-place") == 0) {
            check(publish_in_place(&number));
            number++;
        } else if (strcmp(mode, "one") == 0 || strcmp(mode, "clear") == 0) {
            write_message(buffer, length_of(number), &number);
            check(publish(buffer, length_of(number)));
            number++;
        } else if (strcmp(mode, "numbered") == 0) {
            uint64_t sequence;
            write_message(buffer, length_of(number), &number);
            check(publish_within(buffer, length_of(number), TORONI_FOREVER, &sequence));
            printf("sequence\t%llu\n", (unsigned long long)sequence);
            number++;
        } else if (strcmp(mode, "try") == 0) {
            int status;
            write_message(buffer, length_of(number), &number);
            while ((status = publish_within(buffer, length_of(number), TORONI_NO_WAIT, NULL)) == TORONI_FULL ||
                   status == TORONI_BUSY) {
                const struct timespec pause = {0, 1000000};
                nanosleep(&pause, NULL);
            }
            check(status);
            number++;
        } else {
            toroni_bytes bundle[BUNDLE];
            size_t in_bundle = 0;
            for (; in_bundle < BUNDLE && number < wanted; in_bundle++, number++) {
                unsigned char *at = buffer + in_bundle * size;
                write_message(at, length_of(number), &number);
                bundle[in_bundle].data = at;
                bundle[in_bundle].length = length_of(number);
            }
            if (strcmp(mode, "batch") == 0) check(publish_batch(bundle, in_bundle));
            else if (strcmp(mode, "burst") == 0) check(publish_burst(bundle, in_bundle));
            else return fputs("MODE is one, try, batch, burst, in-place, numbered, clear, or one of these after "
                              "exclusive-, or inlet; or one of all these after retained-\n", stderr), 1;
        }
    }
    if (strcmp(mode, "clear") == 0) {
        uint64_t sequence;
        check(clear(&sequence));
        printf("cleared\t%llu\n", (unsigned long long)sequence);
    }
    printf("published\t%llu\n", (unsigned long long)number);
    free(buffer);
    toroni_exclusive_topic_close(topic);
    toroni_exclusive_close(exclusive);
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
    return 0;
}
