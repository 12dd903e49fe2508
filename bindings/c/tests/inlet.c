/* Inlets: messages from elsewhere, and the losses of such messages. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND 1000000000ull

static toroni_origin origin_of(uint64_t number) {
    toroni_origin origin = {0, 7, 1, 0, {0, 0, 0}};
    origin.number = number;
    return origin;
}

/* Brings one message with a number of the stream 0, which is also its text. */
static int bring(const toroni_inlet *inlet, const toroni_inlet_topic *topic, uint64_t number) {
    char text[24];
    toroni_bytes part = {text, 0};
    toroni_inlet_entry entry = {0};
    part.length = (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    entry.topic = topic;
    entry.parts = &part, entry.part_count = 1;
    entry.origin = origin_of(number);
    entry.flags = TORONI_ENTRY_HAS_ORIGIN;
    return toroni_inlet_publish(inlet, &entry, 1, TORONI_FOREVER, NULL);
}

static int is_origin(const toroni_message *message, uint64_t number) {
    return message->flags & TORONI_MESSAGE_HAS_ORIGIN && message->origin.source == 7 && message->origin.series == 1 &&
           message->origin.stream == 0 && message->origin.number == number;
}

/* Receives the next message, by copy or in place. A run may end before any message. */
static void receive(toroni_subscriber *subscriber, int in_place, toroni_message *message) {
    if (!in_place) OK(toroni_receive(subscriber, message));
    else if (toroni_next_in_place(subscriber, message) != TORONI_OK) OK(toroni_receive_in_place(subscriber, 0, message));
}

void an_inlet_publishes_what_comes_from_elsewhere(void) {
    const toroni_bytes parts[3] = {{"from ", 5}, {NULL, 0}, {"afar", 4}};
    toroni_inlet_entry entries[3] = {{0}};
    toroni_bus *bus = open_bus(NULL);
    toroni_subscriber *subscriber, *in_place, *below;
    toroni_inlet *inlet;
    toroni_inlet_topic *a, *b;
    toroni_message message;
    size_t published = 9;
    int i;
    OK(toroni_bus_subscribe(bus, "**", &subscriber));
    OK(toroni_bus_subscribe(bus, "**", &in_place));
    OK(toroni_bus_subscribe(bus, "a/below", &below));
    OK(toroni_inlet_open(bus, NULL, &inlet));
    OK(toroni_inlet_open_topic(inlet, "a", &a));
    OK(toroni_inlet_open_topic(inlet, "b", &b));
    entries[0].topic = a, entries[0].parts = parts, entries[0].part_count = 3;
    entries[0].flags = TORONI_ENTRY_TO_DESCENDANTS | TORONI_ENTRY_HAS_TIMESTAMP | TORONI_ENTRY_HAS_ORIGIN |
                       TORONI_ENTRY_HAS_NUMBER | TORONI_ENTRY_HAS_OPEN_FROM;
    entries[0].timestamp_ns = 5 * SECOND;
    entries[0].origin = origin_of(UINT64_C(0xffffffffffff));
    entries[0].origin.source = entries[0].origin.series = UINT32_MAX, entries[0].origin.stream = UINT16_MAX;
    entries[0].number = UINT64_MAX;
    entries[0].open_from = 0;
    /* Fields without a flag are not read. */
    entries[1] = entries[0];
    entries[1].topic = b, entries[1].part_count = 1, entries[1].flags = 0, entries[1].open_from = UINT64_MAX;
    entries[2].topic = b;
    OK(toroni_inlet_publish(inlet, entries, 3, TORONI_FOREVER, &published));
    CHECK(published == 3);
    OK(toroni_inlet_publish(inlet, entries, 0, SECOND, &published));
    CHECK(published == 0);
    for (i = 0; i < 2; i++) {
        toroni_subscriber *const reader = i == 0 ? subscriber : in_place;
        receive(reader, i, &message);
        CHECK(says(&message, "from afar") && message.topic_length == 1 && *message.topic == 'a');
        CHECK(message.flags == (TORONI_MESSAGE_TO_DESCENDANTS | TORONI_MESSAGE_HAS_TIMESTAMP |
                                TORONI_MESSAGE_HAS_ORIGIN | TORONI_MESSAGE_HAS_NUMBER));
        CHECK(message.timestamp_ns == 5 * SECOND && message.number == UINT64_MAX);
        CHECK(message.origin.source == UINT32_MAX && message.origin.series == UINT32_MAX);
        CHECK(message.origin.stream == UINT16_MAX && message.origin.number == UINT64_C(0xffffffffffff));
        receive(reader, i, &message);
        CHECK(says(&message, "from ") && *message.topic == 'b' && message.flags == 0 && message.number == 0);
        CHECK(message.origin.source == 0 && message.origin.number == 0 && message.timestamp_ns == 0);
        receive(reader, i, &message);
        CHECK(says(&message, ""));
    }
    OK(toroni_validate(in_place));
    OK(toroni_try_receive(below, &message));
    CHECK(says(&message, "from afar"));
    toroni_inlet_topic_close(a);
    toroni_inlet_topic_close(b);
    toroni_inlet_close(inlet);
    toroni_subscriber_close(below);
    toroni_subscriber_close(in_place);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}

void each_message_from_elsewhere_arrives_once(void) {
    static const uint64_t numbers[] = {2, 0, 4, 1, 1, 3, 4}, open_from[] = {0, 1, 1, 3, 3, 5, 5};
    const char *const pattern = "a";
    toroni_inlet_entry entry = {0};
    toroni_lost lost = {{0}, 0, 0, 0, 0, NULL, 0};
    toroni_bus *bus = open_bus(NULL);
    toroni_subscriber *subscriber;
    toroni_inlet *inlet;
    toroni_inlet_topic *topic;
    toroni_arrived arrived;
    toroni_message message;
    uint64_t number;
    size_t i;
    OK(toroni_bus_subscribe(bus, "**", &subscriber));
    OK(toroni_inlet_open(bus, NULL, &inlet));
    OK(toroni_inlet_open_topic(inlet, "a", &topic));
    OK(bring(inlet, topic, 3));
    OK(bring(inlet, topic, 3));
    CHECK(toroni_inlet_duplicates(inlet) == 1);
    OK(bring(inlet, topic, 8));
    toroni_inlet_topic_close(topic);
    toroni_inlet_close(inlet);
    /* A program that restarts sends everything again. */
    OK(toroni_inlet_open(bus, NULL, &inlet));
    OK(toroni_inlet_open_topic(inlet, "a", &topic));
    for (number = 0; number < 10; number++) OK(bring(inlet, topic, number));
    CHECK(toroni_inlet_duplicates(inlet) == 9);
    for (number = 3; number < 10; number += number == 3 ? 5 : 1) {
        OK(toroni_try_receive(subscriber, &message));
        CHECK(is_origin(&message, number));
    }
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(subscriber, &message));
    OK(toroni_inlet_claim(inlet, 7, 1, 0, TORONI_FOREVER, &arrived));
    CHECK(arrived.next == 10 && !arrived.taken_over && arrived.reserved == 0);

    /* In any order. */
    entry.topic = topic, entry.flags = TORONI_ENTRY_HAS_ORIGIN | TORONI_ENTRY_HAS_OPEN_FROM;
    for (i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        entry.origin = origin_of(numbers[i]), entry.origin.stream = 5, entry.open_from = open_from[i];
        OK(toroni_inlet_publish(inlet, &entry, 1, TORONI_FOREVER, NULL));
    }
    CHECK(toroni_inlet_duplicates(inlet) == 11);

    /* The numbers of a loss have arrived, too. */
    lost.from = origin_of(10), lost.until = 20, lost.messages = 4;
    lost.bound = TORONI_BOUND_AT_LEAST, lost.reason = TORONI_REASON_BURST;
    lost.scope = &pattern, lost.scope_count = 1;
    number = 15;
    OK(toroni_inlet_publish_lost(inlet, &lost, &number, TORONI_FOREVER));
    OK(toroni_inlet_claim(inlet, 7, 1, 0, TORONI_FOREVER, &arrived));
    CHECK(arrived.next == 15);
    OK(toroni_inlet_publish_lost(inlet, &lost, NULL, SECOND));
    OK(toroni_inlet_publish_lost(inlet, &lost, NULL, TORONI_FOREVER));
    CHECK(toroni_inlet_duplicates(inlet) == 12);
    OK(toroni_inlet_claim(inlet, 7, 1, 0, TORONI_FOREVER, &arrived));
    CHECK(arrived.next == 20);

    /* The numbers below that of an advance, too. */
    lost.from.number = 30;
    OK(toroni_inlet_advance(inlet, &lost.from, TORONI_FOREVER));
    lost.from.number = 25;
    OK(toroni_inlet_advance(inlet, &lost.from, SECOND));
    OK(toroni_inlet_claim(inlet, 7, 1, 0, TORONI_NO_WAIT, &arrived));
    CHECK(arrived.next == 30);
    lost.from.number = TORONI_NUMBER_LIMIT + 1;
    RETURNS(TORONI_INVALID_ORIGIN, toroni_inlet_advance(inlet, &lost.from, TORONI_FOREVER));
    toroni_inlet_topic_close(topic);
    toroni_inlet_close(inlet);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}

static toroni_lost told;

static void is_told(const toroni_lost *lost, void *context) {
    told = *lost;
    CHECK(strcmp(lost->scope[1], "b") == 0);
    ++*(int *)context;
}

static void ignore(const toroni_message *message, void *context) { (void)message, (void)context; }

void losses_from_elsewhere_arrive_at_their_place(void) {
    const char *const scope[2] = {"a/*", "b"}, *const mine = "**", *const other = "a";
    toroni_subscriber_options local = TORONI_SUBSCRIBER_OPTIONS_INIT;
    toroni_lost lost = {{0}, 0, 0, 0, 0, NULL, 0}, found;
    toroni_bus *bus = open_bus(NULL);
    toroni_subscriber *subscriber, *in_place, *elsewhere, *local_one;
    toroni_router *router, *throwing;
    toroni_publisher *publisher;
    toroni_inlet *inlet;
    toroni_inlet_topic *topic;
    toroni_message message;
    toroni_loss lapped;
    toroni_subscriber_stats seen;
    toroni_stats *stats;
    size_t handled;
    int calls = 0, i;
    OK(toroni_bus_subscribe(bus, "a/b", &subscriber));
    OK(toroni_bus_subscribe(bus, mine, &in_place));
    OK(toroni_bus_subscribe(bus, other, &elsewhere));
    local.patterns = &mine, local.pattern_count = 1, local.local_only = 1;
    OK(toroni_bus_subscribe_with(bus, &local, &local_one));
    OK(toroni_bus_router(bus, &router));
    OK(toroni_router_on(router, "b", ignore, NULL));
    OK(toroni_router_on_lost(router, is_told, &calls));
    OK(toroni_bus_router(bus, &throwing));
    OK(toroni_router_on(throwing, "b", ignore, NULL));
    OK(toroni_subscriber_last_lost(subscriber, &found));
    CHECK(found.messages == 0 && found.scope == NULL);

    OK(toroni_bus_publisher(bus, "a/b", NULL, &publisher));
    OK(toroni_inlet_open(bus, NULL, &inlet));
    OK(toroni_inlet_open_topic(inlet, "a/b", &topic));
    OK(bring(inlet, topic, 1));
    lost.from = origin_of(2), lost.until = UINT64_C(1) << 48, lost.messages = UINT64_MAX;
    lost.bound = TORONI_BOUND_AT_MOST, lost.reason = TORONI_REASON_DIVERGED;
    lost.scope = scope, lost.scope_count = 2;
    OK(toroni_inlet_publish_lost(inlet, &lost, &lost.from.number, TORONI_FOREVER));
    OK(toroni_publish(publisher, "mine", 4));

    for (i = 0; i < 2; i++) {
        toroni_subscriber *const reader = i == 0 ? subscriber : in_place;
        receive(reader, i, &message);
        CHECK(is_origin(&message, 1));
        memset(&message, 1, sizeof message);
        if (i == 0) RETURNS(TORONI_LOST, toroni_receive(reader, &message));
        else {
            RETURNS(TORONI_NO_MESSAGE, toroni_next_in_place(reader, &message));
            RETURNS(TORONI_LOST, toroni_receive_in_place(reader, 0, &message));
        }
        CHECK(message.payload == NULL && message.topic == NULL && message.sequence == 0);
        CHECK(strstr(toroni_error_message(), "of source 00000007") != NULL);
        receive(reader, i, &message);
        CHECK(says(&message, "mine") && !(message.flags & TORONI_MESSAGE_HAS_ORIGIN));
        OK(toroni_subscriber_last_lost(reader, &found));
        CHECK(found.from.source == 7 && found.from.series == 1 && found.from.stream == 0 && found.from.number == 2);
        CHECK(found.until == TORONI_NUMBER_LIMIT && found.messages == UINT64_MAX && found.scope_count == 2);
        CHECK(found.bound == TORONI_BOUND_AT_MOST && found.reason == TORONI_REASON_DIVERGED);
        CHECK(strcmp(found.scope[0], "a/*") == 0 && strcmp(found.scope[1], "b") == 0);
        OK(toroni_subscriber_last_loss(reader, &lapped));
        CHECK(lapped.messages == 0);
        OK(toroni_subscriber_get_stats(reader, &seen));
        CHECK(seen.losses == 1 && seen.lost_on_the_way == UINT64_MAX && seen.lapses == 0 && seen.received == 2);
    }
    OK(toroni_bus_take_stats(bus, &stats));
    for (handled = 0; handled < toroni_stats_subscriber_count(stats); handled++) {
        const toroni_subscriber_info *const info = toroni_stats_subscriber(stats, handled);
        const int knows =
            info->slot == toroni_subscriber_slot(subscriber) || info->slot == toroni_subscriber_slot(in_place);
        CHECK(info->losses == (knows ? 1 : 0) && info->lost_on_the_way == (knows ? UINT64_MAX : 0));
    }
    toroni_stats_close(stats);
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(elsewhere, &message));
    OK(toroni_try_receive(local_one, &message));
    CHECK(says(&message, "mine"));
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(local_one, &message));
    OK(toroni_router_poll(router, &handled));
    CHECK(calls == 1 && told.until == TORONI_NUMBER_LIMIT && told.from.number == 2);
    RETURNS(TORONI_LOST, toroni_router_poll(throwing, &handled));
    OK(toroni_router_last_lost(throwing, &found));
    CHECK(handled == 0 && found.messages == UINT64_MAX && strcmp(found.scope[0], "a/*") == 0);
    OK(toroni_router_last_lost(router, &found));
    CHECK(found.messages == 0 && found.scope_count == 0);

    toroni_inlet_topic_close(topic);
    toroni_inlet_close(inlet);
    toroni_publisher_close(publisher);
    toroni_router_close(throwing);
    toroni_router_close(router);
    toroni_subscriber_close(local_one);
    toroni_subscriber_close(elsewhere);
    toroni_subscriber_close(in_place);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}

void one_inlet_at_a_time_brings_a_series(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    char holder[80];
    toroni_bus *bus = open_bus(NULL), *other;
    toroni_inlet *first, *second;
    toroni_inlet_topic *topic, *others;
    toroni_arrived arrived;
    options.participant_name = "the bridge";
    other = open_bus(&options);
    OK(toroni_inlet_open(other, NULL, &first));
    OK(toroni_inlet_open_topic(first, "a", &others));
    OK(bring(first, others, 5));
    OK(toroni_inlet_open(bus, NULL, &second));
    OK(toroni_inlet_open_topic(second, "a", &topic));
    RETURNS(TORONI_TAKEN, bring(second, topic, 6));
    snprintf(holder, sizeof holder, "\"the bridge\", process %d,", (int)getpid());
    CHECK(strstr(toroni_error_message(), holder) != NULL);
    RETURNS(TORONI_TAKEN, toroni_inlet_claim(second, 7, 1, 0, TORONI_FOREVER, &arrived));
    OK(toroni_inlet_claim(second, 7, 1, 3, TORONI_FOREVER, &arrived));
    OK(toroni_inlet_claim(second, 7, 2, 0, TORONI_FOREVER, &arrived));
    RETURNS(TORONI_FOREIGN_TOPIC, bring(second, others, 6));
    /* Its topic does not keep it. */
    toroni_inlet_close(first);
    OK(toroni_inlet_claim(second, 7, 1, 0, TORONI_FOREVER, &arrived));
    CHECK(arrived.next == 6 && arrived.taken_over == 1);
    toroni_inlet_topic_close(others);
    toroni_inlet_topic_close(topic);
    toroni_inlet_close(second);
    toroni_bus_close(other);
    toroni_bus_close(bus);
}

void invalid_messages_from_elsewhere_are_refused(void) {
    static const char payload[20000];
    const toroni_bytes halves[2] = {{payload, sizeof payload}, {payload, sizeof payload}};
    const char *patterns[17];
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_inlet_entry entries[2] = {{0}}, *const bad = &entries[1];
    toroni_lost lost = {{0}, 0, 0, 0, 0, NULL, 0};
    toroni_bus *bus;
    toroni_inlet *inlet;
    toroni_inlet_topic *topic;
    toroni_arrived arrived;
    toroni_origin next = origin_of(1);
    toroni_stats *stats;
    uint64_t open_from = TORONI_NUMBER_LIMIT + 1;
    size_t published = 9, i;
    options.capacity = 1 << 16, options.max_arrivals = 2;
    bus = open_bus(&options);
    OK(toroni_inlet_open(bus, NULL, &inlet));
    OK(toroni_inlet_open_topic(inlet, "t", &topic));
    entries[0].topic = bad->topic = topic;

    bad->parts = halves, bad->part_count = 2;
    RETURNS(TORONI_TOO_LONG, toroni_inlet_publish(inlet, entries, 2, TORONI_FOREVER, &published));
    CHECK(published == 0);
    bad->part_count = 0, bad->flags = 32;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_inlet_publish(inlet, entries, 2, TORONI_FOREVER, NULL));
    bad->flags = 0, bad->reserved = 1;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_inlet_publish(inlet, entries, 2, TORONI_FOREVER, NULL));
    bad->reserved = 0, bad->flags = TORONI_ENTRY_HAS_ORIGIN, bad->origin.reserved[2] = 1;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_inlet_publish(inlet, entries, 2, TORONI_FOREVER, NULL));
    bad->origin = origin_of(TORONI_NUMBER_LIMIT);
    RETURNS(TORONI_INVALID_ORIGIN, toroni_inlet_publish(inlet, entries, 2, TORONI_FOREVER, NULL));
    bad->flags = TORONI_ENTRY_HAS_OPEN_FROM, bad->open_from = open_from;
    RETURNS(TORONI_INVALID_ORIGIN, toroni_inlet_publish(inlet, entries, 2, TORONI_FOREVER, NULL));

    for (i = 0; i < 17; i++) patterns[i] = "**";
    lost.scope = patterns, lost.scope_count = 1, lost.reason = TORONI_REASON_GONE, lost.until = 1;
    RETURNS(TORONI_INVALID_ORIGIN, toroni_inlet_publish_lost(inlet, &lost, &open_from, TORONI_FOREVER));
    lost.from.number = 2;
    RETURNS(TORONI_INVALID_LOSS, toroni_inlet_publish_lost(inlet, &lost, NULL, TORONI_FOREVER));
    lost.until = TORONI_NUMBER_LIMIT + 1;
    RETURNS(TORONI_INVALID_LOSS, toroni_inlet_publish_lost(inlet, &lost, NULL, TORONI_FOREVER));
    lost.until = 3, lost.scope_count = 17;
    RETURNS(TORONI_INVALID_LOSS, toroni_inlet_publish_lost(inlet, &lost, NULL, TORONI_FOREVER));
    lost.scope_count = 0;
    RETURNS(TORONI_INVALID_LOSS, toroni_inlet_publish_lost(inlet, &lost, NULL, TORONI_FOREVER));
    lost.scope_count = 1, patterns[0] = "//";
    RETURNS(TORONI_INVALID_PATTERN, toroni_inlet_publish_lost(inlet, &lost, NULL, TORONI_FOREVER));
    patterns[0] = "**", lost.bound = 3;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_inlet_publish_lost(inlet, &lost, NULL, TORONI_FOREVER));
    lost.bound = 0, lost.reason = 0;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_inlet_publish_lost(inlet, &lost, NULL, TORONI_FOREVER));
    lost.reason = 12;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_inlet_publish_lost(inlet, &lost, NULL, TORONI_FOREVER));
    CHECK(strstr(toroni_error_message(), "reason is 12") != NULL);
    OK(toroni_bus_take_stats(bus, &stats));
    CHECK(toroni_stats_bus(stats)->sequence == 0 && toroni_stats_bus(stats)->max_arrivals == 2);
    toroni_stats_close(stats);

    for (next.stream = 2; next.stream < 9; next.stream++)
        OK(toroni_inlet_claim(inlet, 7, 1, next.stream, TORONI_FOREVER, &arrived));
    for (next.stream = 0; next.stream < 2; next.stream++) OK(toroni_inlet_advance(inlet, &next, TORONI_FOREVER));
    RETURNS(TORONI_TOO_MANY_ARRIVALS, toroni_inlet_advance(inlet, &next, TORONI_FOREVER));
    CHECK(strstr(toroni_error_message(), "max_arrivals") != NULL);
    toroni_inlet_topic_close(topic);
    toroni_inlet_close(inlet);
    toroni_bus_close(bus);

    options.directory = directory, options.max_arrivals = TORONI_NO_ARRIVALS;
    OK(toroni_bus_open("inlet.none", &options, &bus));
    OK(toroni_inlet_open(bus, NULL, &inlet));
    RETURNS(TORONI_TOO_MANY_ARRIVALS, toroni_inlet_advance(inlet, &next, TORONI_FOREVER));
    toroni_inlet_close(inlet);
    toroni_bus_close(bus);
}

void an_inlet_waits_for_slow_subscribers(void) {
    static const char payload[1000];
    const toroni_bytes part = {payload, sizeof payload};
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_inlet_entry entries[100] = {{0}};
    toroni_bus *bus;
    toroni_subscriber *subscriber;
    toroni_inlet *inlet;
    toroni_inlet_topic *topic;
    toroni_arrived arrived;
    toroni_message message;
    size_t published = 0, i;
    options.capacity = 1 << 16;
    options.policy.kind = TORONI_POLICY_WAIT, options.policy.limit_ns = TORONI_FOREVER;
    bus = open_bus(&options);
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    OK(toroni_inlet_open(bus, NULL, &inlet));
    OK(toroni_inlet_open_topic(inlet, "t", &topic));
    for (i = 0; i < 100; i++) {
        entries[i].topic = topic, entries[i].parts = &part, entries[i].part_count = 1;
        entries[i].origin = origin_of(i), entries[i].flags = TORONI_ENTRY_HAS_ORIGIN;
    }
    RETURNS(TORONI_TIMEOUT, toroni_inlet_publish(inlet, entries, 100, SECOND / 100, &published));
    CHECK(published > 0 && published < 100);
    RETURNS(TORONI_FULL, toroni_inlet_publish(inlet, entries + published, 1, TORONI_NO_WAIT, NULL));
    OK(toroni_inlet_claim(inlet, 7, 1, 0, TORONI_FOREVER, &arrived));
    CHECK(arrived.next == published);
    for (i = 0; i < published; i++) OK(toroni_try_receive(subscriber, &message));
    /* It can publish all of them again: those that are there are duplicates. */
    OK(toroni_inlet_publish(inlet, entries, published + 20, TORONI_FOREVER, NULL));
    CHECK(toroni_inlet_duplicates(inlet) == published);
    for (; i < arrived.next + 20; i++) {
        OK(toroni_try_receive(subscriber, &message));
        CHECK(is_origin(&message, i));
    }
    toroni_inlet_topic_close(topic);
    toroni_inlet_close(inlet);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}

static void *claim_in_vain(void *inlet) {
    toroni_arrived arrived;
    const toroni_origin next = origin_of(1);
    RETURNS(TORONI_TIMEOUT, toroni_inlet_claim(inlet, 7, 1, 0, SECOND / 100, &arrived));
    RETURNS(TORONI_BUSY, toroni_inlet_claim(inlet, 7, 1, 0, TORONI_NO_WAIT, &arrived));
    RETURNS(TORONI_BUSY, toroni_inlet_advance(inlet, &next, TORONI_NO_WAIT));
    return NULL;
}

/* Has the writer lock while another thread claims. */
static int fill_beside(void *data, size_t length, void *inlet) {
    pthread_t thread;
    memset(data, 0, length);
    CHECK(pthread_create(&thread, NULL, claim_in_vain, inlet) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}

void an_inlet_can_wait_less_than_the_bus_says(void) {
    static const char payload[1000];
    const toroni_bytes part = {payload, sizeof payload};
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_inlet_options hasty = TORONI_INLET_OPTIONS_INIT;
    toroni_inlet_entry entry = {0};
    toroni_bus *bus;
    toroni_publisher *publisher;
    toroni_subscriber *subscriber;
    toroni_inlet *inlet;
    toroni_inlet_topic *topic;
    toroni_message message;
    toroni_arrived arrived;
    int i;
    options.capacity = 1 << 16;
    options.policy.kind = TORONI_POLICY_WAIT, options.policy.limit_ns = TORONI_FOREVER;
    bus = open_bus(&options);
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    hasty.policy.kind = TORONI_POLICY_OVERWRITE;
    OK(toroni_inlet_open(bus, &hasty, &inlet));
    OK(toroni_inlet_open_topic(inlet, "t", &topic));
    entry.topic = topic, entry.parts = &part, entry.part_count = 1;
    for (i = 0; i < 100; i++) OK(toroni_inlet_publish(inlet, &entry, 1, TORONI_FOREVER, NULL));
    RETURNS(TORONI_LAPPED, toroni_try_receive(subscriber, &message));
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_publish_in_place(publisher, 1, TORONI_FOREVER, fill_beside, inlet, NULL));
    toroni_publisher_close(publisher);
    OK(toroni_inlet_claim(inlet, 7, 1, 0, SECOND, &arrived));
    CHECK(arrived.next == 0 && !arrived.taken_over);
    OK(toroni_inlet_claim(inlet, 7, 1, 0, TORONI_FOREVER, &arrived));
    toroni_inlet_topic_close(topic);
    toroni_inlet_close(inlet);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}

static toroni_inlet *shared;

static void *bring_in_a_thread(void *context) {
    const uint16_t stream = *(const uint16_t *)context;
    toroni_inlet_entry entry = {0};
    toroni_inlet_topic *topic;
    int i;
    OK(toroni_inlet_open_topic(shared, "t", &topic));
    entry.topic = topic, entry.flags = TORONI_ENTRY_HAS_ORIGIN;
    for (i = 0; i < 100; i++) {
        entry.origin = origin_of((uint64_t)i), entry.origin.stream = stream;
        OK(toroni_inlet_publish(shared, &entry, 1, TORONI_FOREVER, NULL));
    }
    toroni_inlet_topic_close(topic);
    return NULL;
}

void threads_share_an_inlet(void) {
    static uint16_t streams[4] = {0, 1, 2, 3};
    uint64_t next[4] = {0};
    pthread_t threads[4];
    toroni_bus *bus = open_bus(NULL);
    toroni_subscriber *subscriber;
    toroni_message message;
    size_t i;
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    OK(toroni_inlet_open(bus, NULL, &shared));
    for (i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, bring_in_a_thread, &streams[i]) == 0);
    for (i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (i = 0; i < 400; i++) {
        OK(toroni_try_receive(subscriber, &message));
        CHECK(message.origin.number == next[message.origin.stream]++);
    }
    toroni_inlet_close(shared);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}

void a_killed_inlet_is_succeeded(void) {
    toroni_bus *bus = open_bus(NULL);
    toroni_subscriber *subscriber;
    toroni_inlet *inlet;
    toroni_inlet_topic *topic;
    toroni_arrived arrived;
    toroni_message message;
    pid_t child;
    int status;
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    OK(toroni_inlet_open(bus, NULL, &inlet));
    OK(toroni_inlet_open_topic(inlet, "t", &topic));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        toroni_bus *const own = open_bus(NULL);
        toroni_inlet *own_inlet;
        toroni_inlet_topic *own_topic;
        RETURNS(TORONI_FORKED, bring(inlet, topic, 1));
        RETURNS(TORONI_FORKED, toroni_inlet_claim(inlet, 7, 1, 0, TORONI_FOREVER, &arrived));
        OK(toroni_inlet_open(own, NULL, &own_inlet));
        OK(toroni_inlet_open_topic(own_inlet, "t", &own_topic));
        OK(bring(own_inlet, own_topic, 1));
        for (;;) pause();
    }
    OK(toroni_receive(subscriber, &message));
    CHECK(is_origin(&message, 1));
    RETURNS(TORONI_TAKEN, bring(inlet, topic, 2));
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    OK(bring(inlet, topic, 1));
    OK(bring(inlet, topic, 2));
    OK(toroni_receive(subscriber, &message));
    CHECK(is_origin(&message, 2) && toroni_inlet_duplicates(inlet) == 1);
    toroni_inlet_topic_close(topic);
    toroni_inlet_close(inlet);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}
