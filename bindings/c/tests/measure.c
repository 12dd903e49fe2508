/* Measures publishing and receiving in C with one thread. Prints lines `c <what> <bytes> <messages per second>`. The
 * subscriber never waits, because the cost of a wait does not depend on the language. */
#define _XOPEN_SOURCE 700

#include "toroni.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void check(int status) {
    if (status == TORONI_OK) return;
    fprintf(stderr, "%s\n", toroni_error_message());
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static toroni_publisher *publisher;
static toroni_subscriber *subscriber;
static char *payload;
static toroni_bytes bundle[64];
static size_t length;
static unsigned long long sum;

static int copy_in(void *data, size_t bytes, void *context) {
    memcpy(data, context, bytes);
    return 0;
}

static void one(size_t count) {
    for (; count > 0; count--) check(toroni_publish(publisher, payload, length));
}
static void batch(size_t count) {
    for (; count > 0; count -= 64) check(toroni_publish_batch(publisher, bundle, 64, TORONI_FOREVER, NULL));
}
static void burst(size_t count) {
    for (; count > 0; count -= 64) check(toroni_publish_burst(publisher, bundle, 64, TORONI_FOREVER, NULL));
}
static void in_place(size_t count) {
    for (; count > 0; count--)
        check(toroni_publish_in_place(publisher, length, TORONI_FOREVER, copy_in, payload, NULL));
}

static void receive(size_t count) {
    toroni_message message;
    for (; count > 0; count--) {
        check(toroni_receive(subscriber, &message));
        sum += *(const unsigned char *)message.payload;
    }
}
static void receive_in_place(size_t count) {
    toroni_message message;
    while (count > 0) {
        int status = toroni_receive_in_place(subscriber, TORONI_FOREVER, &message);
        for (; status == TORONI_OK; status = toroni_next_in_place(subscriber, &message), count--)
            sum += *(const unsigned char *)message.payload;
        if (status != TORONI_NO_MESSAGE) check(status);
        check(toroni_validate(subscriber));
    }
}

static const struct {
    const char *name;
    void (*send)(size_t count);
    const char *reception;
    void (*receive)(size_t count);
} ways[] = {{"publish", one, "receive", receive},
            {"batch of 64", batch, "receive in place", receive_in_place},
            {"burst of 64", burst, NULL, receive},
            {"in place", in_place, NULL, receive}};

int main(int count, char **arguments) {
    static const size_t lengths[] = {8, 1024};
    const double seconds = count > 1 ? atof(arguments[1]) : 1.0;
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus;
    size_t i, l;
    options.capacity = 64 << 20;
    check(toroni_bus_open("measure", &options, &bus));
    check(toroni_bus_publisher(bus, "t", NULL, &publisher));
    for (l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        /* A quarter of the ring at a time, so that publishers never wait for the subscriber. */
        const size_t some = ((size_t)(16 << 20) / (lengths[l] + 8)) / 64 * 64;
        length = lengths[l];
        payload = calloc(1, length);
        if (payload == NULL) return 1;
        for (i = 0; i < 64; i++) bundle[i].data = payload, bundle[i].length = length;
        for (i = 0; i < sizeof ways / sizeof *ways; i++) {
            double sending = 0, receiving = 0, began;
            size_t sent = 0;
            check(toroni_bus_subscribe(bus, "t", &subscriber));
            while (sending + receiving < seconds) {
                began = now();
                ways[i].send(some);
                sending += now() - began;
                began = now();
                ways[i].receive(some);
                receiving += now() - began;
                sent += some;
            }
            toroni_subscriber_close(subscriber);
            printf("c\t%s\t%zu\t%.0f\n", ways[i].name, length, (double)sent / sending);
            if (ways[i].reception != NULL)
                printf("c\t%s\t%zu\t%.0f\n", ways[i].reception, length, (double)sent / receiving);
            fflush(stdout);
        }
        free(payload);
    }
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
    return sum == 1; /* used, so that the compiler does not omit it */
}
