/* Invalid arguments, statuses and error texts. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include <pthread.h>
#include <unistd.h>

static int fill(void *data, size_t length, void *context) {
    (void)data, (void)length, (void)context;
    return 0;
}

static void handler(const toroni_message *message, void *context) { (void)message, (void)context; }
static void loss_handler(const toroni_loss *loss, void *context) { (void)loss, (void)context; }
static void lost_handler(const toroni_lost *lost, void *context) { (void)lost, (void)context; }

#define NULL_IN(call)                                                  \
    do {                                                               \
        RETURNS(TORONI_INVALID_ARGUMENT, call);                        \
        CHECK(strstr(toroni_error_message(), "is null") != NULL);      \
    } while (0)

void null_is_an_error_everywhere(void) {
    toroni_bus *bus = open_bus(NULL), *no_bus = bus;
    toroni_publisher *publisher, *no_publisher;
    toroni_exclusive *exclusive, *no_exclusive;
    toroni_exclusive_topic *topic, *no_topic;
    toroni_inlet *inlet, *no_inlet;
    toroni_inlet_topic *inlet_topic, *no_inlet_topic;
    toroni_inlet_entry entry = {0};
    toroni_lost lost = {{0}, 1, 1, 0, 1, NULL, 1};
    toroni_origin origin = {0};
    toroni_arrived arrived;
    toroni_subscriber *subscriber, *no_subscriber;
    toroni_subscriber_options options = TORONI_SUBSCRIBER_OPTIONS_INIT;
    toroni_router *router, *no_router;
    toroni_stats *stats;
    toroni_topics *topics;
    toroni_values *values;
    toroni_reopened reopened;
    toroni_message message;
    toroni_loss loss;
    toroni_bytes bytes = {NULL, 1};
    toroni_subscriber_stats seen;
    const char *const no_pattern = NULL;
    uint64_t sequence;
    size_t count;
    int fd;

    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    OK(toroni_bus_router(bus, &router));

    NULL_IN(toroni_bus_open(NULL, NULL, &no_bus));
    CHECK(no_bus == NULL);
    NULL_IN(toroni_bus_open("b", NULL, NULL));
    CHECK(toroni_bus_name(NULL) == NULL && toroni_bus_path(NULL) == NULL && toroni_bus_id(NULL) == NULL);
    NULL_IN(toroni_bus_publisher(NULL, "t", NULL, &no_publisher));
    NULL_IN(toroni_bus_publisher(bus, NULL, NULL, &no_publisher));
    NULL_IN(toroni_bus_publisher(bus, "t", NULL, NULL));
    CHECK(toroni_publisher_topic(NULL) == NULL && toroni_publisher_largest_message(NULL) == 0);
    NULL_IN(toroni_publish(NULL, "", 0));
    NULL_IN(toroni_publish(publisher, NULL, 1));
    NULL_IN(toroni_publish_within(NULL, "", 0, TORONI_NO_WAIT, NULL));
    NULL_IN(toroni_publish_within(publisher, NULL, 1, TORONI_FOREVER, NULL));
    NULL_IN(toroni_publish_within(NULL, "", 0, TORONI_FOREVER, &sequence));
    NULL_IN(toroni_publish_within(publisher, NULL, 1, 1, &sequence));
    NULL_IN(toroni_publish_batch(NULL, NULL, 0, TORONI_FOREVER, NULL));
    NULL_IN(toroni_publish_batch(publisher, NULL, 1, TORONI_FOREVER, &sequence));
    NULL_IN(toroni_publish_batch(publisher, &bytes, 1, TORONI_NO_WAIT, NULL));
    NULL_IN(toroni_publish_burst(NULL, NULL, 0, TORONI_FOREVER, NULL));
    NULL_IN(toroni_publish_burst(publisher, NULL, 1, TORONI_FOREVER, &count));
    NULL_IN(toroni_publish_burst(publisher, &bytes, 1, TORONI_NO_WAIT, &count));
    CHECK(count == 0);
    NULL_IN(toroni_publish_in_place(NULL, 0, TORONI_FOREVER, fill, NULL, NULL));
    NULL_IN(toroni_publish_in_place(publisher, 0, TORONI_FOREVER, NULL, NULL, &sequence));
    NULL_IN(toroni_publisher_clear(NULL, TORONI_FOREVER, &sequence));

    OK(toroni_exclusive_open(bus, 0, &exclusive));
    OK(toroni_exclusive_open_topic(exclusive, "t", NULL, &topic));
    NULL_IN(toroni_exclusive_open(NULL, 0, &no_exclusive));
    NULL_IN(toroni_exclusive_open(bus, 0, NULL));
    NULL_IN(toroni_exclusive_set_always_fenced(NULL, 1));
    NULL_IN(toroni_exclusive_open_topic(NULL, "t", NULL, &no_topic));
    NULL_IN(toroni_exclusive_open_topic(exclusive, NULL, NULL, &no_topic));
    NULL_IN(toroni_exclusive_open_topic(exclusive, "t", NULL, NULL));
    CHECK(toroni_exclusive_topic_largest_message(NULL) == 0);
    NULL_IN(toroni_exclusive_publish(NULL, topic, "", 0, TORONI_FOREVER, NULL));
    NULL_IN(toroni_exclusive_publish(exclusive, NULL, "", 0, TORONI_NO_WAIT, NULL));
    NULL_IN(toroni_exclusive_publish(exclusive, topic, NULL, 1, TORONI_FOREVER, &sequence));
    NULL_IN(toroni_exclusive_publish_batch(NULL, topic, NULL, 0, TORONI_FOREVER, NULL));
    NULL_IN(toroni_exclusive_publish_batch(exclusive, NULL, NULL, 0, TORONI_NO_WAIT, &sequence));
    NULL_IN(toroni_exclusive_publish_batch(exclusive, topic, &bytes, 1, TORONI_FOREVER, NULL));
    NULL_IN(toroni_exclusive_publish_burst(NULL, topic, NULL, 0, TORONI_FOREVER, &count));
    NULL_IN(toroni_exclusive_publish_burst(exclusive, NULL, NULL, 0, TORONI_FOREVER, &count));
    NULL_IN(toroni_exclusive_publish_burst(exclusive, topic, &bytes, 1, TORONI_NO_WAIT, &count));
    CHECK(count == 0);
    NULL_IN(toroni_exclusive_publish_in_place(NULL, topic, 0, TORONI_FOREVER, fill, NULL, NULL));
    NULL_IN(toroni_exclusive_publish_in_place(exclusive, NULL, 0, TORONI_FOREVER, fill, NULL, NULL));
    NULL_IN(toroni_exclusive_publish_in_place(exclusive, topic, 0, TORONI_FOREVER, NULL, NULL, &sequence));
    NULL_IN(toroni_exclusive_clear(NULL, topic, TORONI_FOREVER, &sequence));
    NULL_IN(toroni_exclusive_clear(exclusive, NULL, TORONI_FOREVER, NULL));

    OK(toroni_inlet_open(bus, NULL, &inlet));
    toroni_exclusive_close(exclusive);
    OK(toroni_inlet_open_topic(inlet, "t", &inlet_topic));
    NULL_IN(toroni_inlet_open(NULL, NULL, &no_inlet));
    NULL_IN(toroni_inlet_open(bus, NULL, NULL));
    NULL_IN(toroni_inlet_open_topic(NULL, "t", &no_inlet_topic));
    NULL_IN(toroni_inlet_open_topic(inlet, NULL, &no_inlet_topic));
    NULL_IN(toroni_inlet_open_topic(inlet, "t", NULL));
    CHECK(toroni_inlet_duplicates(NULL) == 0);
    NULL_IN(toroni_inlet_retain(NULL, inlet_topic));
    NULL_IN(toroni_inlet_retain(inlet, NULL));
    NULL_IN(toroni_inlet_claim(NULL, 1, 1, 1, TORONI_FOREVER, &arrived));
    NULL_IN(toroni_inlet_claim(inlet, 1, 1, 1, TORONI_FOREVER, NULL));
    NULL_IN(toroni_inlet_advance(NULL, &origin, TORONI_FOREVER));
    NULL_IN(toroni_inlet_advance(inlet, NULL, TORONI_FOREVER));
    NULL_IN(toroni_inlet_publish(NULL, NULL, 0, TORONI_FOREVER, &count));
    NULL_IN(toroni_inlet_publish(inlet, NULL, 1, TORONI_FOREVER, &count));
    NULL_IN(toroni_inlet_publish(inlet, &entry, 1, TORONI_FOREVER, &count));
    entry.topic = inlet_topic, entry.part_count = 1;
    NULL_IN(toroni_inlet_publish(inlet, &entry, 1, TORONI_FOREVER, &count));
    entry.parts = &bytes;
    NULL_IN(toroni_inlet_publish(inlet, &entry, 1, 0, &count));
    CHECK(count == 0);
    NULL_IN(toroni_inlet_publish_lost(inlet, NULL, NULL, TORONI_FOREVER));
    NULL_IN(toroni_inlet_publish_lost(inlet, &lost, NULL, TORONI_FOREVER));
    lost.scope = &no_pattern;
    NULL_IN(toroni_inlet_publish_lost(inlet, &lost, NULL, 0));

    NULL_IN(toroni_bus_subscribe(NULL, "t", &no_subscriber));
    NULL_IN(toroni_bus_subscribe(bus, NULL, &no_subscriber));
    NULL_IN(toroni_bus_subscribe(bus, "t", NULL));
    NULL_IN(toroni_bus_subscribe_with(NULL, &options, &no_subscriber));
    NULL_IN(toroni_bus_subscribe_with(bus, NULL, &no_subscriber));
    NULL_IN(toroni_bus_subscribe_with(bus, &options, NULL));
    options.pattern_count = 1;
    NULL_IN(toroni_bus_subscribe_with(bus, &options, &no_subscriber));
    options.patterns = &no_pattern;
    NULL_IN(toroni_bus_subscribe_with(bus, &options, &no_subscriber));
    CHECK(no_subscriber == NULL);
    NULL_IN(toroni_subscriber_add_pattern(NULL, "t"));
    NULL_IN(toroni_subscriber_add_pattern(subscriber, NULL));
    NULL_IN(toroni_receive(NULL, &message));
    NULL_IN(toroni_receive(subscriber, NULL));
    NULL_IN(toroni_try_receive(NULL, &message));
    NULL_IN(toroni_try_receive(subscriber, NULL));
    NULL_IN(toroni_receive_timeout(NULL, 0, &message));
    NULL_IN(toroni_receive_timeout(subscriber, 0, NULL));
    NULL_IN(toroni_receive_in_place(NULL, 0, &message));
    NULL_IN(toroni_receive_in_place(subscriber, 0, NULL));
    NULL_IN(toroni_next_in_place(NULL, &message));
    NULL_IN(toroni_next_in_place(subscriber, NULL));
    NULL_IN(toroni_validate(NULL));
    NULL_IN(toroni_subscriber_last_loss(NULL, &loss));
    NULL_IN(toroni_subscriber_last_loss(subscriber, NULL));
    NULL_IN(toroni_subscriber_last_lost(NULL, &lost));
    NULL_IN(toroni_subscriber_last_lost(subscriber, NULL));
    NULL_IN(toroni_subscriber_fd(NULL, &fd));
    NULL_IN(toroni_subscriber_fd(subscriber, NULL));
    CHECK(toroni_subscriber_run_number(NULL) == 0 && toroni_subscriber_slot(NULL) == TORONI_NO_SLOT);
    CHECK(toroni_subscriber_is_current(NULL) == 0);
    CHECK(toroni_subscriber_position(NULL) == 0 && toroni_subscriber_lag_bytes(NULL) == 0);
    NULL_IN(toroni_subscriber_hold(NULL, 0));
    NULL_IN(toroni_subscriber_release_hold(NULL));
    CHECK(toroni_subscriber_held(NULL) == TORONI_NO_SEQUENCE);
    NULL_IN(toroni_subscriber_get_stats(NULL, &seen));
    NULL_IN(toroni_subscriber_get_stats(subscriber, NULL));
    toroni_subscriber_interrupt(NULL);

    NULL_IN(toroni_bus_router(NULL, &no_router));
    CHECK(no_router == NULL);
    NULL_IN(toroni_bus_router(bus, NULL));
    NULL_IN(toroni_router_on(NULL, "t", handler, NULL));
    NULL_IN(toroni_router_on(router, NULL, handler, NULL));
    NULL_IN(toroni_router_on(router, "t", NULL, NULL));
    NULL_IN(toroni_router_on_lapped(NULL, loss_handler, NULL));
    NULL_IN(toroni_router_on_lapped(router, NULL, NULL));
    NULL_IN(toroni_router_on_lost(NULL, lost_handler, NULL));
    NULL_IN(toroni_router_on_lost(router, NULL, NULL));
    NULL_IN(toroni_router_poll(NULL, &count));
    OK(toroni_router_poll(router, NULL));
    NULL_IN(toroni_router_run_once(NULL, 0));
    NULL_IN(toroni_router_run(NULL));
    NULL_IN(toroni_router_last_loss(NULL, &loss));
    NULL_IN(toroni_router_last_loss(router, NULL));
    NULL_IN(toroni_router_last_lost(NULL, &lost));
    NULL_IN(toroni_router_last_lost(router, NULL));
    NULL_IN(toroni_router_fd(NULL, &fd));
    NULL_IN(toroni_router_fd(router, NULL));
    CHECK(toroni_router_position(NULL) == 0 && toroni_router_lag_bytes(NULL) == 0);
    CHECK(toroni_router_slot(NULL) == TORONI_NO_SLOT);
    NULL_IN(toroni_router_get_stats(NULL, &seen));
    NULL_IN(toroni_router_get_stats(router, NULL));
    toroni_router_interrupt(NULL);

    NULL_IN(toroni_bus_take_stats(NULL, &stats));
    NULL_IN(toroni_bus_take_stats(bus, NULL));
    CHECK(toroni_stats_bus(NULL) == NULL && toroni_stats_publisher(NULL, 0) == NULL);
    CHECK(toroni_stats_subscriber(NULL, 0) == NULL);
    CHECK(toroni_stats_lock_owner(NULL) == NULL);
    CHECK(toroni_stats_socket_count(NULL) == 0 && toroni_stats_socket(NULL, 0) == NULL);
    CHECK(toroni_stats_publisher_count(NULL) == 0 && toroni_stats_subscriber_count(NULL) == 0);
    NULL_IN(toroni_bus_take_topics(NULL, &topics));
    NULL_IN(toroni_bus_take_topics(bus, NULL));
    CHECK(toroni_topics_count(NULL) == 0 && toroni_topics_at(NULL, 0) == NULL);
    NULL_IN(toroni_bus_retained(NULL, "t", &values));
    NULL_IN(toroni_bus_retained(bus, NULL, &values));
    NULL_IN(toroni_bus_retained(bus, "t", NULL));
    NULL_IN(toroni_bus_retained_matching(NULL, "t", &values));
    NULL_IN(toroni_bus_retained_matching(bus, NULL, &values));
    NULL_IN(toroni_bus_retained_matching(bus, "t", NULL));
    CHECK(toroni_values_count(NULL) == 0 && toroni_values_at(NULL, 0) == NULL);
    NULL_IN(toroni_last_missing(NULL));
    NULL_IN(toroni_matches(NULL, "t", &fd));
    NULL_IN(toroni_matches("t", NULL, &fd));
    NULL_IN(toroni_matches("t", "t", NULL));
    NULL_IN(toroni_matches_descendants(NULL, "t", &fd));
    NULL_IN(toroni_bus_reopened(NULL, &reopened));
    NULL_IN(toroni_bus_reopened(bus, NULL));
    NULL_IN(toroni_list_buses(directory, NULL));
    CHECK(toroni_bus_list_count(NULL) == 0 && toroni_bus_list_at(NULL, 0) == NULL);
    NULL_IN(toroni_clean(directory, NULL, 0, NULL));
    CHECK(toroni_clean_report_action_count(NULL) == 0 && toroni_clean_report_action(NULL, 0) == NULL);
    CHECK(toroni_clean_report_skip_count(NULL) == 0 && toroni_clean_report_skip(NULL, 0) == NULL);

    toroni_bus_close(NULL);
    toroni_publisher_close(NULL);
    toroni_exclusive_close(NULL);
    toroni_exclusive_topic_close(NULL);
    toroni_inlet_close(NULL);
    toroni_inlet_topic_close(NULL);
    toroni_subscriber_close(NULL);
    toroni_router_close(NULL);
    toroni_stats_close(NULL);
    toroni_topics_close(NULL);
    toroni_values_close(NULL);
    toroni_bus_list_close(NULL);
    toroni_clean_report_close(NULL);
    toroni_exclusive_topic_close(topic);
    toroni_inlet_topic_close(inlet_topic);
    toroni_inlet_close(inlet);
    toroni_router_close(router);
    toroni_subscriber_close(subscriber);
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
}

static int is_zero(const void *bytes, size_t length) {
    const unsigned char *byte = bytes;
    while (length > 0 && *byte == 0) byte++, length--;
    return length == 0;
}

/* Checks that a call which does not return TORONI_OK sets its result to zeros, whatever it held before. */
#define CLEARS(status, call, result)                                   \
    do {                                                               \
        memset(&(result), 0xa5, sizeof(result));                       \
        RETURNS(status, call);                                         \
        CHECK(is_zero(&(result), sizeof(result)));                     \
    } while (0)

/* The same for a descriptor, which is set to -1. */
#define CLEARS_FD(status, call, fd)                                    \
    do {                                                               \
        (fd) = 7;                                                      \
        RETURNS(status, call);                                         \
        CHECK((fd) == -1);                                             \
    } while (0)

/* Makes the router lose messages after the first one. */
static void overtake(const toroni_message *message, void *publisher) {
    static const char payload[1024];
    int i;
    (void)message;
    for (i = 0; i < 200; i++) OK(toroni_publish(publisher, payload, sizeof payload));
}

void a_call_that_fails_clears_its_result(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_subscriber_options subscribing = TORONI_SUBSCRIBER_OPTIONS_INIT;
    const toroni_bytes payloads[2] = {{"1", 1}, {"", 1 << 20}};
    toroni_bus *bus, *no_bus;
    toroni_publisher *publisher, *no_publisher;
    toroni_exclusive *exclusive, *no_exclusive;
    toroni_exclusive_topic *no_topic;
    toroni_inlet *inlet, *no_inlet;
    toroni_inlet_topic *no_inlet_topic;
    toroni_arrived arrived;
    toroni_subscriber *subscriber, *no_subscriber;
    toroni_router *router, *no_router;
    toroni_stats *stats;
    toroni_topics *topics;
    toroni_values *values;
    toroni_bus_list *buses;
    toroni_clean_report *report;
    toroni_reopened reopened;
    toroni_message message;
    toroni_loss loss;
    toroni_lost lost;
    toroni_subscriber_stats seen;
    uint64_t sequence;
    size_t count;
    int fd, matched;

    options.capacity = 1 << 16;
    options.policy.kind = TORONI_POLICY_OVERWRITE;
    bus = open_bus(&options);
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    OK(toroni_bus_router(bus, &router));

    /* Handles are set to NULL. */
    CLEARS(TORONI_INVALID_NAME, toroni_bus_open("a/b", &options, &no_bus), no_bus);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_bus_open(NULL, NULL, &no_bus), no_bus);
    CLEARS(TORONI_INVALID_TOPIC, toroni_bus_publisher(bus, "//", NULL, &no_publisher), no_publisher);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_bus_publisher(NULL, "t", NULL, &no_publisher), no_publisher);
    OK(toroni_exclusive_open(bus, 0, &exclusive));
    CLEARS(TORONI_EXCLUSIVE, toroni_exclusive_open(bus, 0, &no_exclusive), no_exclusive);
    CLEARS(TORONI_INVALID_TOPIC, toroni_exclusive_open_topic(exclusive, "//", NULL, &no_topic), no_topic);
    CLEARS(TORONI_INVALID_ARGUMENT,
           toroni_exclusive_publish_burst(exclusive, NULL, payloads, 1, TORONI_FOREVER, &count), count);
    toroni_exclusive_close(exclusive);
    OK(toroni_inlet_open(bus, NULL, &inlet));
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_inlet_open(NULL, NULL, &no_inlet), no_inlet);
    CLEARS(TORONI_INVALID_TOPIC, toroni_inlet_open_topic(inlet, "//", &no_inlet_topic), no_inlet_topic);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_inlet_claim(NULL, 1, 1, 1, TORONI_FOREVER, &arrived), arrived);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_inlet_publish(inlet, NULL, 1, TORONI_FOREVER, &count), count);
    toroni_inlet_close(inlet);
    CLEARS(TORONI_INVALID_PATTERN, toroni_bus_subscribe(bus, "//", &no_subscriber), no_subscriber);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_bus_subscribe(NULL, "t", &no_subscriber), no_subscriber);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_bus_subscribe_with(bus, NULL, &no_subscriber), no_subscriber);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_bus_subscribe_with(NULL, &subscribing, &no_subscriber), no_subscriber);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_bus_router(NULL, &no_router), no_router);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_bus_take_stats(NULL, &stats), stats);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_bus_take_topics(NULL, &topics), topics);
    CLEARS(TORONI_NO_MESSAGE, toroni_bus_retained(bus, "t", &values), values);
    CLEARS(TORONI_INVALID_TOPIC, toroni_bus_retained(bus, "//", &values), values);
    CLEARS(TORONI_INVALID_PATTERN, toroni_bus_retained_matching(bus, "//", &values), values);
    CLEARS(TORONI_INVALID_SETTING, toroni_list_buses("", &buses), buses);
    CLEARS(TORONI_NOT_FOUND, toroni_clean(directory, "no-such-bus", 0, &report), report);

    /* Descriptors are set to -1. */
    CLEARS_FD(TORONI_INVALID_ARGUMENT, toroni_subscriber_fd(NULL, &fd), fd);
    CLEARS_FD(TORONI_INVALID_ARGUMENT, toroni_router_fd(NULL, &fd), fd);

    /* Everything else is set to zeros. */
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_bus_reopened(NULL, &reopened), reopened);
    CLEARS(TORONI_INVALID_PATTERN, toroni_matches("//", "t", &matched), matched);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_matches(NULL, "t", &matched), matched);
    CLEARS(TORONI_INVALID_TOPIC, toroni_matches_descendants("t", "//", &matched), matched);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_receive(NULL, &message), message);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_try_receive(NULL, &message), message);
    CLEARS(TORONI_NO_MESSAGE, toroni_try_receive(subscriber, &message), message);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_receive_timeout(NULL, 0, &message), message);
    CLEARS(TORONI_NO_MESSAGE, toroni_receive_timeout(subscriber, 1000, &message), message);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_receive_in_place(NULL, 0, &message), message);
    CLEARS(TORONI_NO_MESSAGE, toroni_receive_in_place(subscriber, 0, &message), message);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_next_in_place(NULL, &message), message);
    CLEARS(TORONI_NO_MESSAGE, toroni_next_in_place(subscriber, &message), message);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_subscriber_last_loss(NULL, &loss), loss);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_subscriber_last_lost(NULL, &lost), lost);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_router_last_lost(NULL, &lost), lost);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_subscriber_get_stats(NULL, &seen), seen);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_router_last_loss(NULL, &loss), loss);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_router_get_stats(NULL, &seen), seen);

    CLEARS(TORONI_INVALID_ARGUMENT, toroni_inlet_claim(NULL, 1, 1, 1, TORONI_NO_WAIT, &arrived), arrived);
    CLEARS(TORONI_TOO_LONG, toroni_publish_within(publisher, "", 1 << 20, TORONI_FOREVER, &sequence), sequence);
    CLEARS(TORONI_TOO_LONG, toroni_publish_batch(publisher, payloads, 2, TORONI_FOREVER, &sequence), sequence);
    CLEARS(TORONI_TOO_LONG, toroni_publish_in_place(publisher, 1 << 20, TORONI_FOREVER, fill, NULL, &sequence),
           sequence);
    CLEARS(TORONI_NOT_RETAINED, toroni_publisher_clear(publisher, TORONI_FOREVER, &sequence), sequence);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_exclusive_clear(NULL, NULL, TORONI_FOREVER, &sequence), sequence);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_exclusive_publish(NULL, NULL, "", 0, TORONI_FOREVER, &sequence), sequence);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_exclusive_publish_batch(NULL, NULL, NULL, 0, TORONI_FOREVER, &sequence),
           sequence);
    CLEARS(TORONI_INVALID_ARGUMENT,
           toroni_exclusive_publish_in_place(NULL, NULL, 0, TORONI_FOREVER, fill, NULL, &sequence), sequence);

    /* A count says how much was done before the failure. */
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_publish_burst(NULL, payloads, 1, TORONI_FOREVER, &count), count);
    CLEARS(TORONI_TOO_LONG, toroni_publish_burst(publisher, payloads, 2, TORONI_FOREVER, &count), count);
    CLEARS(TORONI_INVALID_ARGUMENT, toroni_router_poll(NULL, &count), count);
    OK(toroni_router_on(router, "t", overtake, publisher));
    OK(toroni_publish(publisher, "1", 1));
    count = 99;
    RETURNS(TORONI_LAPPED, toroni_router_poll(router, &count));
    CHECK(count == 1);
    CLEARS(TORONI_LAPPED, toroni_try_receive(subscriber, &message), message);

    toroni_router_close(router);
    toroni_subscriber_close(subscriber);
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
}

void invalid_texts_and_values_are_errors(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT, other;
    toroni_subscriber_options subscribing = TORONI_SUBSCRIBER_OPTIONS_INIT;
    toroni_publisher_options publishing = TORONI_PUBLISHER_OPTIONS_INIT;
    toroni_inlet_options bringing = TORONI_INLET_OPTIONS_INIT;
    toroni_inlet *inlet;
    const toroni_bytes endless = {"", SIZE_MAX};
    toroni_bus *bus = open_bus(NULL), *no_bus;
    toroni_publisher *publisher;
    toroni_subscriber *subscriber;

    options.directory = directory;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_open("\xff\xfe", &options, &no_bus));
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_publisher(bus, "a\xff", NULL, &publisher));
    CHECK(publisher == NULL);
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_subscribe(bus, "\xc3", &subscriber));
    CHECK(strstr(toroni_error_message(), "the pattern: ") != NULL);

    other = options, other.struct_size--;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_open("b", &other, &no_bus));
    other = options, other.existence = 3;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_open("b", &other, &no_bus));
    other = options, other.lock = -1;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_open("b", &other, &no_bus));
    other = options, other.notify = 3;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_open("b", &other, &no_bus));
    other = options, other.policy.kind = 4;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_open("b", &other, &no_bus));
    other = options, other.flags = 32;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_open("b", &other, &no_bus));
    other = options, other.require = 32;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_open("b", &other, &no_bus));
    CHECK(strstr(toroni_error_message(), "require is 32") != NULL);
    other = options, other.max_arrivals = 65537;
    RETURNS(TORONI_INVALID_SETTING, toroni_bus_open("b", &other, &no_bus));
    subscribing.start = 4;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_subscribe_with(bus, &subscribing, &subscriber));
    subscribing.start = 0, subscribing.wait = 4;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_subscribe_with(bus, &subscribing, &subscriber));
    subscribing.wait = 0, subscribing.struct_size = 0;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_subscribe_with(bus, &subscribing, &subscriber));
    publishing.struct_size = 0;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_publisher(bus, "t", &publishing, &publisher));

    bringing.policy.kind = 4;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_inlet_open(bus, &bringing, &inlet));
    bringing.policy.kind = TORONI_POLICY_WAIT, bringing.policy.limit_ns = TORONI_FOREVER;
    RETURNS(TORONI_INVALID_SETTING, toroni_inlet_open(bus, &bringing, &inlet));
    CHECK(inlet == NULL && strstr(toroni_error_message(), "policy") != NULL);
    bringing.struct_size = 0;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_inlet_open(bus, &bringing, &inlet));

    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_publish(publisher, "", SIZE_MAX));
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_publish_batch(publisher, &endless, 1, TORONI_FOREVER, NULL));
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_publish_batch(publisher, &endless, SIZE_MAX, TORONI_FOREVER, NULL));
    RETURNS(TORONI_TOO_LONG, toroni_publish_in_place(publisher, SIZE_MAX, TORONI_FOREVER, fill, NULL, NULL));
    OK(toroni_publish(publisher, NULL, 0));
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
}

/* Copies only the first `size` bytes of options, so that memcheck reports if the library reads more. */
static void *shortened(const void *options, size_t size) {
    void *copy = malloc(size);
    CHECK(copy != NULL);
    memcpy(copy, options, size);
    memcpy(copy, &size, sizeof size);
    return copy;
}

void programs_of_other_releases_are_understood(void) {
    struct {
        toroni_open_options known;
        uint64_t unknown[2];
    } opening = {TORONI_OPEN_OPTIONS_INIT, {0, 0}};
    struct {
        toroni_publisher_options known;
        uint64_t unknown[2];
    } publishing = {TORONI_PUBLISHER_OPTIONS_INIT, {0, 0}};
    struct {
        toroni_subscriber_options known;
        uint64_t unknown[2];
    } subscribing = {TORONI_SUBSCRIBER_OPTIONS_INIT, {0, 0}};
    const char *const pattern = "t";
    toroni_bus *bus;
    toroni_publisher *publisher;
    toroni_subscriber *subscriber;
    toroni_message message;
    void *older;

    /* A later release: fields that are not set do not matter. */
    opening.known.struct_size = sizeof opening;
    opening.known.directory = directory;
    OK(toroni_bus_open("releases", &opening.known, &bus));
    toroni_bus_close(bus);
    opening.unknown[1] = 1;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_open("releases", &opening.known, &bus));
    CHECK(strstr(toroni_error_message(), "this release knows") != NULL && bus == NULL);

    /* An earlier release: fields that it does not have get their defaults. */
    older = shortened(&opening, offsetof(toroni_open_options, capacity));
    OK(toroni_bus_open("releases", older, &bus));
    free(older);

    publishing.known.struct_size = sizeof publishing;
    OK(toroni_bus_publisher(bus, "t", &publishing.known, &publisher));
    toroni_publisher_close(publisher);
    publishing.unknown[0] = 1;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_publisher(bus, "t", &publishing.known, &publisher));
    older = shortened(&publishing, offsetof(toroni_publisher_options, to_descendants));
    OK(toroni_bus_publisher(bus, "t", older, &publisher));
    free(older);

    subscribing.known.struct_size = sizeof subscribing;
    subscribing.known.patterns = &pattern;
    subscribing.known.pattern_count = 1;
    OK(toroni_bus_subscribe_with(bus, &subscribing.known, &subscriber));
    toroni_subscriber_close(subscriber);
    subscribing.unknown[0] = 1;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_subscribe_with(bus, &subscribing.known, &subscriber));
    older = shortened(&subscribing, offsetof(toroni_subscriber_options, start));
    OK(toroni_bus_subscribe_with(bus, older, &subscriber));
    free(older);
    OK(toroni_publish(publisher, "", 0));
    OK(toroni_receive(subscriber, &message));
    CHECK(message.reserved == 0 && message.flags == 0);
    toroni_subscriber_close(subscriber);
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
}

void each_error_has_its_status_and_says_what_to_do(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_publisher_options publishing = TORONI_PUBLISHER_OPTIONS_INIT;
    toroni_bus *bus = open_bus(NULL), *no_bus;
    toroni_publisher *publisher;
    toroni_subscriber *subscriber;

    options.directory = directory;
    RETURNS(TORONI_INVALID_NAME, toroni_bus_open("a/b", &options, &no_bus));
    CHECK(strstr(toroni_error_message(), "\"a/b\"") != NULL);
    options.existence = TORONI_OPEN_EXISTING;
    RETURNS(TORONI_NOT_FOUND, toroni_bus_open("other", &options, &no_bus));
    options.existence = TORONI_OPEN_NEW;
    RETURNS(TORONI_ALREADY_EXISTS, toroni_bus_open(toroni_bus_name(bus), &options, &no_bus));
    options.existence = TORONI_OPEN_OR_CREATE, options.capacity = 1000;
    RETURNS(TORONI_INVALID_SETTING, toroni_bus_open("other", &options, &no_bus));
    options.capacity = 1 << 20, options.require = TORONI_REQUIRE_CAPACITY;
    RETURNS(TORONI_SETTING_MISMATCH, toroni_bus_open(toroni_bus_name(bus), &options, &no_bus));
    options.require = TORONI_REQUIRE_OWNER, options.owner = getuid() + 1;
    RETURNS(TORONI_FOREIGN_OWNER, toroni_bus_open(toroni_bus_name(bus), &options, &no_bus));
    RETURNS(TORONI_INVALID_TOPIC, toroni_bus_publisher(bus, "a//b", NULL, &publisher));
    publishing.policy.kind = TORONI_POLICY_WAIT, publishing.policy.limit_ns = TORONI_FOREVER;
    RETURNS(TORONI_INVALID_SETTING, toroni_bus_publisher(bus, "t", &publishing, &publisher));
    RETURNS(TORONI_INVALID_PATTERN, toroni_bus_subscribe(bus, "a/b*", &subscriber));

    /* A status that is not an error leaves the text unchanged. */
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    RETURNS(TORONI_NO_MESSAGE, toroni_receive_timeout(subscriber, 1000, &(toroni_message){0}));
    CHECK(strstr(toroni_error_message(), "a/b*") != NULL);
    CHECK(strcmp(toroni_status_text(TORONI_NO_MESSAGE), "no message is available, or none arrived in time") == 0);
    CHECK(strcmp(toroni_status_text(12345), "not a status of this release") == 0);
    CHECK(strchr(toroni_version(), '.') != NULL);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}

static void *other_thread(void *unused) {
    (void)unused;
    CHECK(strcmp(toroni_error_message(), "") == 0);
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_publish(NULL, "", 0));
    return NULL;
}

void errors_belong_to_their_thread(void) {
    toroni_bus *bus;
    pthread_t thread;
    char before[200];
    RETURNS(TORONI_INVALID_NAME, toroni_bus_open("", NULL, &bus));
    snprintf(before, sizeof before, "%s", toroni_error_message());
    CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strcmp(before, toroni_error_message()) == 0);
}
