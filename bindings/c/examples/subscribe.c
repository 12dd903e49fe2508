/* The shortest subscriber: subscribe BUS PATTERN prints messages until SIGINT or SIGTERM ends it. */
#define _XOPEN_SOURCE 700
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <toroni.h>

static toroni_subscriber *subscriber;

static void stop(int signal) {
    (void)signal;
    toroni_subscriber_interrupt(subscriber);
}

int main(int count, char **arguments) {
    toroni_bus *bus = NULL;
    toroni_message message;
    int status;
    if (count != 3) return fputs("subscribe BUS PATTERN\n", stderr), 2;
    if (toroni_bus_open(arguments[1], NULL, &bus) || toroni_bus_subscribe(bus, arguments[2], &subscriber))
        return fprintf(stderr, "%s\n", toroni_error_message()), 1;
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    fputs("subscribed\n", stderr);
    for (;;) {
        status = toroni_receive(subscriber, &message);
        if (status == TORONI_LAPPED) {
            /* Messages were lost. Continue, as here, or request the whole state from its publisher. */
            fprintf(stderr, "%s\n", toroni_error_message());
            continue;
        }
        if (status != TORONI_OK) break;
        printf("%.*s %.*s\n", (int)message.topic_length, message.topic, (int)message.payload_length,
               (const char *)message.payload);
        fflush(stdout);
    }
    /* A second signal must not interrupt a subscriber that is closed. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    if (status != TORONI_INTERRUPTED) fprintf(stderr, "%s\n", toroni_error_message());
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
    return status != TORONI_INTERRUPTED;
}
