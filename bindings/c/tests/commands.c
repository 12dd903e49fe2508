/* Commands, and the wait for their events. An inlet plays the node, which writes events to the bus of the feed. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND 1000000000ull

/* The bus of events, and the bus of commands. Each test has a feed of its own. */
typedef struct host {
    const char *feed;
    toroni_bus *bus;
    toroni_inlet *inlet;
    toroni_inlet_topic *topic;
    toroni_commands *commands;
} host;

static host open_host(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    host one = {0};
    one.bus = open_bus(NULL);
    one.feed = toroni_bus_name(one.bus);
    OK(toroni_inlet_open(one.bus, NULL, &one.inlet));
    OK(toroni_inlet_open_topic(one.inlet, "new/order", &one.topic));
    options.directory = directory, options.capacity = 1 << 16;
    OK(toroni_commands_open(one.feed, &options, &one.commands));
    return one;
}

static void close_host(host *one) {
    toroni_commands_close(one->commands);
    toroni_inlet_topic_close(one->topic);
    toroni_inlet_close(one->inlet);
    toroni_bus_close(one->bus);
}

/* Writes the event of a command. */
static void event(const host *one, uint64_t number, toroni_sent sent) {
    const toroni_bytes part = {"7 boxes", 7};
    toroni_inlet_entry entry = {0};
    entry.topic = one->topic, entry.parts = &part, entry.part_count = 1;
    entry.origin.source = 7, entry.origin.series = sent.series, entry.origin.number = sent.number;
    entry.number = number, entry.flags = TORONI_ENTRY_HAS_ORIGIN | TORONI_ENTRY_HAS_NUMBER;
    OK(toroni_inlet_publish(one->inlet, &entry, 1, TORONI_FOREVER, NULL));
}

void a_command_is_awaited_until_its_event_comes(void) {
    host one = open_host();
    toroni_subscriber *subscriber;
    toroni_pending *pending;
    toroni_message message;
    toroni_sent sent, watched, other;
    toroni_echo echo;
    OK(toroni_bus_subscribe(one.bus, "**", &subscriber));
    OK(toroni_commands_send(one.commands, "new/order", "7 boxes", 7, TORONI_FOREVER, &sent));
    CHECK(sent.number == 0);
    OK(toroni_commands_send_and_watch(one.commands, "new/order", "7 boxes", 7, SECOND, &pending));
    OK(toroni_pending_sent(pending, &watched));
    CHECK(watched.number == 1 && watched.series == sent.series);
    echo.outcome = 9;
    RETURNS(TORONI_NO_MESSAGE, toroni_pending_wait(pending, SECOND / 100, &echo));
    CHECK(echo.outcome == 0);
    other = sent, other.series ^= 1;
    event(&one, 3, other), event(&one, 4, sent);
    RETURNS(TORONI_NO_MESSAGE, toroni_pending_wait(pending, 0, &echo));
    event(&one, 6, watched);
    OK(toroni_pending_wait(pending, TORONI_FOREVER, &echo));
    CHECK(echo.outcome == TORONI_ECHO_EVENT && echo.number == 6);
    OK(toroni_pending_wait(pending, 0, &echo));
    CHECK(echo.outcome == TORONI_ECHO_EVENT && echo.number == 6);
    toroni_pending_close(pending);

    OK(toroni_receive(subscriber, &message));
    CHECK(!toroni_commands_is_mine(one.commands, &message) && !toroni_sent_is_echo(&sent, &message));
    OK(toroni_receive(subscriber, &message));
    CHECK(toroni_commands_is_mine(one.commands, &message) && toroni_sent_is_echo(&sent, &message));
    CHECK(!toroni_sent_is_echo(&watched, &message) && message.number == 4);
    CHECK(message.flags & TORONI_MESSAGE_HAS_NUMBER && message.origin.source == 7);
    /* A message of the bus that is no event. */
    message.flags = 0;
    CHECK(!toroni_commands_is_mine(one.commands, &message) && !toroni_sent_is_echo(&sent, &message));
    toroni_subscriber_close(subscriber);
    close_host(&one);
}

void lost_commands_and_events_are_outcomes(void) {
    static const char *const everything = "**";
    host one = open_host();
    toroni_lost lost = {0};
    toroni_pending *first, *second;
    toroni_sent sent;
    toroni_echo echo;
    OK(toroni_commands_send_and_watch(one.commands, "new/order", NULL, 0, TORONI_FOREVER, &first));
    OK(toroni_commands_send_and_watch(one.commands, "new/order", NULL, 0, TORONI_FOREVER, &second));
    OK(toroni_pending_sent(first, &sent));
    lost.from.source = 7, lost.from.series = sent.series, lost.from.number = sent.number;
    lost.until = sent.number + 1, lost.messages = 1, lost.reason = TORONI_REASON_OVERTAKEN;
    lost.scope = &everything, lost.scope_count = 1;
    OK(toroni_inlet_publish_lost(one.inlet, &lost, NULL, TORONI_FOREVER));
    OK(toroni_pending_wait(first, TORONI_FOREVER, &echo));
    CHECK(echo.outcome == TORONI_ECHO_LOST && echo.number == 0);
    RETURNS(TORONI_NO_MESSAGE, toroni_pending_wait(second, SECOND / 100, &echo));
    /* A later command of this host has its event, so the one that is awaited was missed. */
    sent.number = 2;
    event(&one, 9, sent);
    OK(toroni_pending_wait(second, TORONI_FOREVER, &echo));
    CHECK(echo.outcome == TORONI_ECHO_MISSED);
    /* It does not depend on the handle that sent the command. */
    toroni_commands_close(one.commands), one.commands = NULL;
    OK(toroni_pending_wait(second, 0, &echo));
    toroni_pending_close(first);
    toroni_pending_close(second);
    close_host(&one);
}

static void *fill(void *commands) {
    static const char payload[1000];
    toroni_sent sent;
    int status;
    do status = toroni_commands_send(commands, "t", payload, sizeof payload, SECOND / 100, &sent);
    while (status == TORONI_OK);
    RETURNS(TORONI_TIMEOUT, status);
    CHECK(sent.series == 0 && sent.number == 0);
    return NULL;
}

static void *send_in_a_thread(void *commands) {
    toroni_sent sent;
    int i;
    for (i = 0; i < 50; i++) OK(toroni_commands_send(commands, "t", "1", 1, TORONI_FOREVER, &sent));
    return NULL;
}

void threads_send_commands(void) {
    host one = open_host();
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    pthread_t threads[4];
    toroni_subscriber *courier;
    toroni_message message;
    toroni_bus *bus;
    char name[80];
    uint64_t i;
    snprintf(name, sizeof name, "%s.commands", one.feed);
    options.directory = directory, options.existence = TORONI_OPEN_EXISTING;
    OK(toroni_bus_open(name, &options, &bus));
    OK(toroni_bus_subscribe(bus, "**", &courier));
    for (i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, send_in_a_thread, one.commands) == 0);
    for (i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (i = 0; i < 200; i++) {
        OK(toroni_try_receive(courier, &message));
        CHECK(message.sequence == i && says(&message, "1"));
    }
    /* The courier takes no more. The policy is to wait, whatever the options say. */
    CHECK(pthread_create(&threads[0], NULL, fill, one.commands) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0);
    toroni_subscriber_close(courier);
    toroni_bus_close(bus);
    close_host(&one);
}

void wrong_calls_of_commands_are_errors(void) {
    host one = open_host();
    static const char long_payload[1 << 20];
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_commands *other = (toroni_commands *)1;
    toroni_pending *pending = (toroni_pending *)1;
    toroni_message message = {0};
    toroni_sent sent = {9, 9, 9};
    toroni_echo echo = {9, 9, 9};
    pid_t child;
    int status;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_commands_open(NULL, NULL, &other));
    CHECK(other == NULL);
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_commands_open("feed", NULL, NULL));
    options.directory = directory, options.existence = TORONI_OPEN_EXISTING;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_commands_open("feed", &options, &other));
    CHECK(strstr(toroni_error_message(), "TORONI_OPEN_OR_CREATE") != NULL);
    options.existence = 3;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_commands_open("feed", &options, &other));
    options.existence = 0;
    RETURNS(TORONI_INVALID_NAME, toroni_commands_open("no/name", &options, &other));
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_commands_send(NULL, "t", "", 0, 0, &sent));
    CHECK(sent.number == 0 && sent.series == 0 && sent.reserved == 0);
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_commands_send(one.commands, NULL, "", 0, 0, &sent));
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_commands_send(one.commands, "t", NULL, 1, 0, &sent));
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_commands_send(one.commands, "t", "", 0, 0, NULL));
    RETURNS(TORONI_INVALID_TOPIC, toroni_commands_send(one.commands, "a//b", "", 0, 0, &sent));
    RETURNS(TORONI_TOO_LONG, toroni_commands_send(one.commands, "t", long_payload, sizeof long_payload, 0, &sent));
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_commands_send_and_watch(NULL, "t", "", 0, 0, &pending));
    CHECK(pending == NULL);
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_pending_wait(NULL, 0, &echo));
    CHECK(echo.number == 0 && echo.outcome == 0);
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_pending_sent(NULL, &sent));
    CHECK(!toroni_commands_is_mine(NULL, &message) && !toroni_commands_is_mine(one.commands, NULL));
    CHECK(!toroni_sent_is_echo(NULL, &message) && !toroni_sent_is_echo(&sent, NULL));
    toroni_pending_close(NULL);
    toroni_commands_close(NULL);

    /* No node has made the bus of events. Then nothing is sent. */
    OK(toroni_commands_open("commands.alone", &options, &other));
    RETURNS(TORONI_NOT_FOUND, toroni_commands_send_and_watch(other, "t", "", 0, 0, &pending));
    OK(toroni_commands_send(other, "t", "", 0, TORONI_FOREVER, &sent));
    CHECK(sent.number == 0);
    toroni_commands_close(other);

    OK(toroni_commands_send_and_watch(one.commands, "t", "", 0, TORONI_FOREVER, &pending));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        RETURNS(TORONI_FORKED, toroni_commands_send(one.commands, "t", "", 0, 0, &sent));
        RETURNS(TORONI_FORKED, toroni_commands_send(one.commands, "another", "", 0, 0, &sent));
        RETURNS(TORONI_FORKED, toroni_pending_wait(pending, 0, &echo));
        toroni_pending_close(pending);
        close_host(&one);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    RETURNS(TORONI_NO_MESSAGE, toroni_pending_wait(pending, 0, &echo));
    toroni_pending_close(pending);
    close_host(&one);
}
