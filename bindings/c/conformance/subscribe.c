/* The subscriber of the conformance test in C; bindings/conformance/README.md describes its arguments and output. */
#define _XOPEN_SOURCE 700

#include "common.h"

#include <poll.h>
#include <string.h>

static toroni_subscriber *subscriber;

/* Receives the next message in the way that `mode` names. Returns TORONI_NO_MESSAGE if it must be called again. */
static int next(const char *mode, toroni_message *message) {
    if (strcmp(mode, "receive") == 0 || strcmp(mode, "hold") == 0 || strcmp(mode, "newest") == 0)
        return toroni_receive(subscriber, message);
    if (strcmp(mode, "timeout") == 0) return toroni_receive_timeout(subscriber, 100000000, message);
    if (strcmp(mode, "in-place") == 0) {
        const int status = toroni_next_in_place(subscriber, message);
        return status == TORONI_NO_MESSAGE ? toroni_receive_in_place(subscriber, TORONI_FOREVER, message)
                                           : status;
    }
    if (strcmp(mode, "descriptor") == 0) {
        const int status = toroni_try_receive(subscriber, message);
        if (status == TORONI_NO_MESSAGE) {
            struct pollfd watched = {-1, POLLIN, 0};
            check(toroni_subscriber_fd(subscriber, &watched.fd));
            poll(&watched, 1, -1);
        }
        return status;
    }
    fputs("MODE is receive, timeout, in-place or descriptor, also after retained-, or hold or newest\n", stderr);
    exit(1);
}

static void show_held(void) {
    const uint64_t sequence = toroni_subscriber_held(subscriber);
    if (sequence == TORONI_NO_SEQUENCE) puts("held\t-");
    else printf("held\t%llu\n", (unsigned long long)sequence);
    fflush(stdout);
}

static void wait_for_line(void) {
    char line[80];
    if (fgets(line, sizeof line, stdin) != NULL) return;
    fputs("no line on stdin\n", stderr);
    exit(1);
}

int main(int count, char **arguments) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_subscriber_options subscribing = TORONI_SUBSCRIBER_OPTIONS_INIT;
    const char *pattern, *mode, *what, *const retained = "retained-";
    toroni_bus *bus;
    toroni_message message;
    toroni_subscriber_stats seen;
    unsigned long long wanted, received = 0;
    int was_current;

    if (count != 5) return fputs("subscribe BUS PATTERN COUNT MODE\n", stderr), 1;
    wanted = strtoull(arguments[3], NULL, 10);
    options.existence = TORONI_OPEN_EXISTING;
    check(toroni_bus_open(arguments[1], &options, &bus));
    pattern = arguments[2], mode = arguments[4];
    subscribing.patterns = &pattern, subscribing.pattern_count = 1;
    if (strcmp(mode, "newest") == 0) {
        subscribing.after_loss = TORONI_CONTINUE_NEWEST;
        subscribing.max_age_ns = 3600000000000u;
    }
    if (strncmp(mode, retained, strlen(retained)) == 0) {
        mode += strlen(retained);
        subscribing.retained = 1;
    }
    was_current = !subscribing.retained;
    check(toroni_bus_subscribe_with(bus, &subscribing, &subscriber));
    puts("ready");
    fflush(stdout);
    wait_for_line();

    while (received < wanted) {
        unsigned long long hashed = 0;
        int status;
        if (!was_current && toroni_subscriber_is_current(subscriber)) {
            puts("current");
            fflush(stdout);
            was_current = 1;
        }
        status = next(mode, &message);
        if (status == TORONI_OK) {
            hashed = hash(message.payload, message.payload_length);
            if (strcmp(mode, "in-place") == 0) status = toroni_validate(subscriber);
        }
        if (status == TORONI_NO_MESSAGE) continue;
        if (status == TORONI_LAPPED) {
            toroni_loss loss;
            check(toroni_subscriber_last_loss(subscriber, &loss));
            printf("lost\t%llu\t%llu\n", (unsigned long long)loss.messages, (unsigned long long)loss.bytes);
            fflush(stdout);
            continue;
        }
        if (status == TORONI_LOST) {
            toroni_lost lost;
            size_t i;
            check(toroni_subscriber_last_lost(subscriber, &lost));
            printf("gone\t");
            show_origin(&lost.from);
            printf("%llu\t%llu\t%d\t%d\t", (unsigned long long)lost.until, (unsigned long long)lost.messages,
                   lost.bound, lost.reason);
            for (i = 0; i < lost.scope_count; i++) printf("%s%s", i == 0 ? "" : ",", lost.scope[i]);
            puts("");
            fflush(stdout);
            continue;
        }
        if (status == TORONI_VALUE_MISSING) {
            toroni_missing missing;
            check(toroni_last_missing(&missing));
            show_missing(missing.topic, missing.sequence, missing.length);
            fflush(stdout);
            continue;
        }
        check(status);
        what = message.flags & TORONI_MESSAGE_CLEARED ? "cleared" : message.flags & TORONI_MESSAGE_RETAINED ? "value" : "message";
        printf("%s\t%llu\t%.*s\t%llu\t%016llx\t", what, (unsigned long long)message.sequence,
               (int)message.topic_length, message.topic, (unsigned long long)message.payload_length, hashed);
        show_from(message.flags, &message.origin, message.number);
        fflush(stdout);
        received++;
        if (message.topic_length == 3 && memcmp(message.topic, "end", 3) == 0) wanted = received;
        /* Ends the life of what the message points to. */
        if (strcmp(mode, "hold") == 0)
            check(toroni_subscriber_hold(subscriber, message.sequence < 20 ? 0 : message.sequence - 20));
    }
    if (strcmp(mode, "hold") == 0) {
        show_held();
        wait_for_line();
        check(toroni_subscriber_release_hold(subscriber));
        show_held();
        wait_for_line();
    }
    check(toroni_subscriber_get_stats(subscriber, &seen));
    printf("done\t%llu\t%llu\t%llu\n", (unsigned long long)seen.received,
           (unsigned long long)seen.lost_messages, (unsigned long long)seen.lapses);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
    return 0;
}
