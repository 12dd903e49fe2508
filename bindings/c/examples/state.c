/* A state and its changes: `state BUS VALUE` sets the setpoint, which the bus retains. If VALUE is empty, it clears the
 * setpoint. `state BUS` reads it, whenever it starts, and then prints each change until SIGINT or SIGTERM ends it. */
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

static int set(const toroni_bus *bus, const char *value) {
    toroni_publisher_options options = TORONI_PUBLISHER_OPTIONS_INIT;
    toroni_publisher *publisher = NULL;
    int status;
    options.retained = 1;
    status = toroni_bus_publisher(bus, "plant/setpoint", &options, &publisher);
    if (status == TORONI_OK)
        status = *value ? toroni_publish(publisher, value, strlen(value))
                        : toroni_publisher_clear(publisher, TORONI_FOREVER, NULL);
    toroni_publisher_close(publisher);
    return status;
}

static int follow(const toroni_bus *bus) {
    toroni_subscriber_options options = TORONI_SUBSCRIBER_OPTIONS_INIT;
    const char *const pattern = "plant/setpoint";
    toroni_message message;
    int status;
    options.patterns = &pattern, options.pattern_count = 1, options.retained = 1;
    status = toroni_bus_subscribe_with(bus, &options, &subscriber);
    if (status != TORONI_OK) return status;
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    if (toroni_subscriber_is_current(subscriber)) puts("no setpoint yet");
    fflush(stdout);
    while ((status = toroni_receive(subscriber, &message)) == TORONI_OK || status == TORONI_LAPPED) {
        /* Lost messages are no harm: the newest value follows. */
        if (status == TORONI_LAPPED) continue;
        if (message.flags & TORONI_MESSAGE_CLEARED) puts("no setpoint");
        else
            printf("%s %.*s\n", message.flags & TORONI_MESSAGE_RETAINED ? "is" : "becomes", (int)message.payload_length,
                   (const char *)message.payload);
        fflush(stdout);
    }
    /* A second signal must not interrupt a subscriber that is closed. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    toroni_subscriber_close(subscriber);
    return status == TORONI_INTERRUPTED ? TORONI_OK : status;
}

int main(int count, char **arguments) {
    toroni_bus *bus = NULL;
    int status;
    if (count != 2 && count != 3) return fputs("state BUS [VALUE]\n", stderr), 2;
    status = toroni_bus_open(arguments[1], NULL, &bus);
    if (status == TORONI_OK) status = count == 3 ? set(bus, arguments[2]) : follow(bus);
    if (status != TORONI_OK) fprintf(stderr, "%s\n", toroni_error_message());
    toroni_bus_close(bus);
    return status != TORONI_OK;
}
