/* A counter that is the same on all hosts: each adds up the events in their one order. counter NUMBER... sends the numbers as
 * commands. The feed is TORONI_FEED (default: orders); the host's node brings commands to the leader and events to the bus. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <toroni.h>

/* Reads a number of 64 bits: digits, with a sign or without, and nothing else. All hosts must agree on what is a number. */
static int parse(const char *text, size_t length, int64_t *number) {
    const int negative = length > 0 && *text == '-';
    const uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : INT64_MAX;
    uint64_t value = 0;
    size_t i = negative || (length > 0 && *text == '+');
    if (i == length) return 0;
    for (; i < length; i++) {
        const uint64_t digit = (uint64_t)(unsigned char)text[i] - '0';
        if (digit > 9 || value > (limit - digit) / 10) return 0;
        value = value * 10 + digit;
    }
    *number = (int64_t)(negative ? 0 - value : value);
    return 1;
}

int main(int count, char **arguments) {
    const char *feed = getenv("TORONI_FEED");
    const char *const pattern = "counter/add";
    toroni_subscriber_options options = TORONI_SUBSCRIBER_OPTIONS_INIT;
    toroni_bus *bus = NULL;
    toroni_subscriber *events = NULL;
    toroni_commands *commands = NULL;
    toroni_message event;
    toroni_sent sent;
    uint64_t sum = 0;
    int64_t number;
    int i, failed;
    if (feed == NULL) feed = "orders";
    /* From the oldest event in the ring: start before it is overwritten, or read a bus that was rewound. */
    options.patterns = &pattern, options.pattern_count = 1, options.start = TORONI_START_OLDEST;
    failed = toroni_bus_open(feed, NULL, &bus) || toroni_bus_subscribe_with(bus, &options, &events) ||
             toroni_commands_open(feed, NULL, &commands);
    for (i = 1; i < count && !failed; i++) {
        if (!parse(arguments[i], strlen(arguments[i]), &number)) return fputs("counter NUMBER...\n", stderr), 2;
        failed = toroni_commands_send(commands, "counter/add", arguments[i], strlen(arguments[i]), TORONI_FOREVER, &sent);
    }
    /* After a loss the sum would be wrong, so the program ends. */
    while (!failed && !(failed = toroni_receive(events, &event))) {
        /* The same on all hosts, so it must not matter who sent it, or when it came. */
        if (parse(event.payload, event.payload_length, &number)) sum += (uint64_t)number;
        printf("event %" PRIu64 ": %" PRId64 "\n", event.number, (int64_t)sum);
        fflush(stdout);
    }
    fprintf(stderr, "%s\n", toroni_error_message());
    toroni_commands_close(commands);
    toroni_subscriber_close(events);
    toroni_bus_close(bus);
    return 1;
}
