/* Values of retained topics. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include <pthread.h>

/* Creates a publisher that has declared its topic. */
static toroni_publisher *retained(const toroni_bus *bus, const char *topic) {
    toroni_publisher_options options = TORONI_PUBLISHER_OPTIONS_INIT;
    toroni_publisher *publisher;
    options.retained = 1;
    OK(toroni_bus_publisher(bus, topic, &options, &publisher));
    return publisher;
}

/* Subscribes, and asks for values. */
static toroni_subscriber *asking(const toroni_bus *bus, const char *pattern) {
    toroni_subscriber_options options = TORONI_SUBSCRIBER_OPTIONS_INIT;
    toroni_subscriber *subscriber;
    options.patterns = &pattern, options.pattern_count = 1, options.retained = 1;
    OK(toroni_bus_subscribe_with(bus, &options, &subscriber));
    return subscriber;
}

static int is_on(const toroni_message *message, const char *topic) {
    return message->topic_length == strlen(topic) && memcmp(message->topic, topic, strlen(topic)) == 0;
}

/* Returns whether the value of the topic is this text. */
static int holds(const toroni_bus *bus, const char *topic, const char *text) {
    toroni_values *values;
    const toroni_value *value;
    int equal;
    OK(toroni_bus_retained(bus, topic, &values));
    CHECK(toroni_values_count(values) == 1 && toroni_values_at(values, 1) == NULL);
    value = toroni_values_at(values, 0);
    CHECK(value->status == TORONI_OK && value->problem == NULL && value->missing_length == 0);
    equal = strcmp(value->topic, topic) == 0 && value->payload_length == strlen(text) &&
            memcmp(value->payload, text, strlen(text)) == 0;
    toroni_values_close(values);
    return equal;
}

/* Overwrites the whole ring, of 64 KiB. */
static void lap(const toroni_bus *bus) {
    static const char payload[1000];
    toroni_publisher *noise;
    int i;
    OK(toroni_bus_publisher(bus, "noise", NULL, &noise));
    for (i = 0; i < 100; i++) OK(toroni_publish(noise, payload, sizeof payload));
    toroni_publisher_close(noise);
}

static toroni_bus *small_bus(uint32_t topics, uint64_t bytes) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    options.capacity = 1 << 16, options.policy.kind = TORONI_POLICY_OVERWRITE;
    options.retained_topics = topics, options.retained_bytes = bytes;
    return open_bus(&options);
}

void values_come_before_the_stream(void) {
    toroni_bus *bus = small_bus(0, 0);
    toroni_publisher *setpoint = retained(bus, "plant/setpoint"), *mode = retained(bus, "plant/mode");
    toroni_subscriber *late, *in_place, *plain;
    toroni_message message;
    uint64_t sequence;
    OK(toroni_publish(setpoint, "340", 3));
    OK(toroni_publish(mode, "manual", 6));
    OK(toroni_publish(setpoint, "350", 3));
    lap(bus);
    late = asking(bus, "plant/*");
    in_place = asking(bus, "plant/*");
    OK(toroni_bus_subscribe(bus, "plant/*", &plain));
    CHECK(!toroni_subscriber_is_current(late) && toroni_subscriber_is_current(plain));
    OK(toroni_receive(late, &message));
    CHECK(says(&message, "manual") && is_on(&message, "plant/mode") && message.sequence == 1);
    CHECK(message.flags == TORONI_MESSAGE_RETAINED);
    OK(toroni_receive(late, &message));
    CHECK(says(&message, "350") && is_on(&message, "plant/setpoint") && message.sequence == 2);
    CHECK(message.flags == TORONI_MESSAGE_RETAINED && toroni_subscriber_is_current(late));
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(late, &message));
    OK(toroni_receive_in_place(in_place, 0, &message));
    CHECK(says(&message, "manual") && message.flags == TORONI_MESSAGE_RETAINED);
    /* Does not end the run. */
    CHECK(!toroni_subscriber_is_current(in_place) && toroni_subscriber_run_number(in_place) == 1);
    RETURNS(TORONI_NO_MESSAGE, toroni_next_in_place(in_place, &message));
    OK(toroni_receive_in_place(in_place, 0, &message));
    CHECK(says(&message, "350") && message.flags == TORONI_MESSAGE_RETAINED);
    OK(toroni_validate(in_place));

    OK(toroni_publish(setpoint, "360", 3));
    OK(toroni_publisher_clear(setpoint, TORONI_NO_WAIT, &sequence));
    CHECK(sequence == 104);
    OK(toroni_publish(mode, "automatic", 9));
    OK(toroni_publisher_clear(mode, TORONI_FOREVER, NULL));
    OK(toroni_publish(mode, "", 0));
    OK(toroni_receive(late, &message));
    CHECK(says(&message, "360") && message.flags == 0);
    OK(toroni_receive(late, &message));
    CHECK(is_on(&message, "plant/setpoint") && message.sequence == sequence && message.payload_length == 0);
    CHECK(message.flags == TORONI_MESSAGE_CLEARED);
    OK(toroni_receive(late, &message));
    CHECK(says(&message, "automatic") && message.flags == 0);
    OK(toroni_receive_in_place(in_place, 0, &message));
    CHECK(says(&message, "360") && message.flags == 0);
    OK(toroni_receive_in_place(in_place, 0, &message));
    CHECK(message.sequence == sequence && message.flags == TORONI_MESSAGE_CLEARED);
    /* One that did not ask learns nothing of values. */
    OK(toroni_receive(plain, &message));
    CHECK(says(&message, "360") && message.flags == 0);
    OK(toroni_receive(plain, &message));
    CHECK(says(&message, "automatic") && message.flags == 0);
    toroni_subscriber_close(late);
    toroni_subscriber_close(in_place);
    toroni_subscriber_close(plain);
    toroni_publisher_close(setpoint);
    toroni_publisher_close(mode);
    toroni_bus_close(bus);
}

void values_are_read_without_a_subscriber(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_inlet_entry entry = {0};
    const toroni_bytes payload = {"1.5", 3};
    toroni_bus *bus;
    toroni_publisher *one, *two, *three;
    toroni_inlet *inlet;
    toroni_inlet_topic *topic;
    toroni_values *values;
    const toroni_value *value;
    toroni_topics *topics;
    const toroni_topic_info *info;
    toroni_stats *stats;
    const toroni_bus_stats *seen;
    options.flags = TORONI_FLAG_TIMESTAMPS;
    bus = open_bus(&options);
    one = retained(bus, "a/1"), two = retained(bus, "a/2"), three = retained(bus, "b");
    RETURNS(TORONI_NO_MESSAGE, toroni_bus_retained(bus, "a/1", &values));
    CHECK(values == NULL);
    RETURNS(TORONI_NO_MESSAGE, toroni_bus_retained(bus, "unknown", &values));
    OK(toroni_publish(two, "", 0));
    OK(toroni_publish(one, "first", 5));
    OK(toroni_publish(three, "gone", 4));
    OK(toroni_publisher_clear(three, TORONI_FOREVER, NULL));
    RETURNS(TORONI_NO_MESSAGE, toroni_bus_retained(bus, "b", &values));
    OK(toroni_inlet_open(bus, NULL, &inlet));
    OK(toroni_inlet_open_topic(inlet, "a/3", &topic));
    OK(toroni_inlet_retain(inlet, topic));
    entry.topic = topic, entry.parts = &payload, entry.part_count = 1;
    entry.flags = TORONI_ENTRY_HAS_ORIGIN | TORONI_ENTRY_HAS_NUMBER | TORONI_ENTRY_HAS_TIMESTAMP;
    entry.origin.source = 7, entry.origin.series = 1, entry.origin.stream = 2, entry.origin.number = 9;
    entry.number = 12, entry.timestamp_ns = 34;
    OK(toroni_inlet_publish(inlet, &entry, 1, TORONI_FOREVER, NULL));

    OK(toroni_bus_retained_matching(bus, "a/*", &values));
    CHECK(toroni_values_count(values) == 3 && toroni_values_at(values, 3) == NULL);
    value = toroni_values_at(values, 0);
    CHECK(strcmp(value->topic, "a/2") == 0 && value->payload != NULL && value->payload_length == 0);
    CHECK(value->status == TORONI_OK && value->sequence == 0 && value->flags == TORONI_MESSAGE_HAS_TIMESTAMP);
    value = toroni_values_at(values, 1);
    CHECK(strcmp(value->topic, "a/1") == 0 && value->payload_length == 5 && memcmp(value->payload, "first", 5) == 0);
    CHECK(value->sequence == 1 && value->position > 0 && value->timestamp_ns > 0 && value->number == 0);
    value = toroni_values_at(values, 2);
    CHECK(strcmp(value->topic, "a/3") == 0 && value->payload_length == 3 && memcmp(value->payload, "1.5", 3) == 0);
    CHECK(value->origin.source == 7 && value->origin.series == 1 && value->origin.stream == 2);
    CHECK(value->origin.number == 9 && value->number == 12 && value->timestamp_ns == 34 && value->sequence == 4);
    CHECK(value->flags == (TORONI_MESSAGE_HAS_TIMESTAMP | TORONI_MESSAGE_HAS_ORIGIN | TORONI_MESSAGE_HAS_NUMBER));
    toroni_values_close(values);
    OK(toroni_bus_retained_matching(bus, "nothing", &values));
    CHECK(toroni_values_count(values) == 0 && toroni_values_at(values, 0) == NULL);
    toroni_values_close(values);

    OK(toroni_bus_take_topics(bus, &topics));
    CHECK(toroni_topics_count(topics) == 4);
    info = toroni_topics_at(topics, 0);
    CHECK(info->value == TORONI_TOPIC_KEPT && info->value_sequence == 1 && info->value_bytes == 5);
    CHECK(info->value_published_ns > 0);
    CHECK(toroni_topics_at(topics, 2)->value_published_ns == 34);
    info = toroni_topics_at(topics, 3);
    CHECK(info->value == TORONI_TOPIC_NO_VALUE && info->value_sequence == 0 && info->value_bytes == 0);
    toroni_topics_close(topics);
    OK(toroni_bus_take_stats(bus, &stats));
    seen = toroni_stats_bus(stats);
    CHECK(seen->retained_topics == 4 && seen->missing_values == 0 && seen->retained_used_bytes > 0);
    /* The defaults. */
    CHECK(seen->max_retained_topics == 512 && seen->retained_bytes == 448 << 10);
    toroni_stats_close(stats);
    toroni_inlet_topic_close(topic);
    toroni_inlet_close(inlet);
    toroni_publisher_close(one);
    toroni_publisher_close(two);
    toroni_publisher_close(three);
    toroni_bus_close(bus);
}

static void *has_missed_nothing(void *unused) {
    toroni_missing missing;
    OK(toroni_last_missing(&missing));
    CHECK(missing.topic == NULL && missing.sequence == 0 && missing.length == 0);
    return unused;
}

void a_value_without_room_is_missing(void) {
    static const char payload[1020];
    toroni_bus *bus = small_bus(3, 4096);
    toroni_publisher *publisher = retained(bus, "a"), *other, *third, *plain;
    toroni_subscriber *late;
    toroni_values *values;
    const toroni_value *value;
    toroni_topics *topics;
    toroni_stats *stats;
    toroni_missing missing;
    toroni_message message;
    pthread_t thread;
    uint64_t sequence;
    int status, i;
    has_missed_nothing(NULL);
    OK(toroni_bus_publisher(bus, "a", NULL, &plain));
    OK(toroni_publish(publisher, payload, 100));
    sequence = 9;
    RETURNS(TORONI_VALUE_TOO_LONG, toroni_publish_within(publisher, payload, 1020, TORONI_FOREVER, &sequence));
    CHECK(sequence == 0 && strstr(toroni_error_message(), "1024") != NULL);
    /* Each topic has room for two of its longest. */
    other = retained(bus, "b"), third = retained(bus, "c");
    for (i = 0; i < 4; i++) {
        status = toroni_publish(i % 2 == 0 ? other : third, payload, 900);
        if (status != TORONI_OK) break;
    }
    CHECK(status == TORONI_RETAINED_FULL && strstr(toroni_error_message(), "all 4096 bytes") != NULL);
    /* Another handle knows nothing of values. As long as the message is in the ring, it can be read. */
    OK(toroni_publish_within(plain, payload, 1020, TORONI_FOREVER, &sequence));
    OK(toroni_bus_retained(bus, "a", &values));
    CHECK(toroni_values_at(values, 0)->payload_length == 1020);
    toroni_values_close(values);
    lap(bus);
    RETURNS(TORONI_VALUE_MISSING, toroni_bus_retained(bus, "a", &values));
    CHECK(values == NULL && strstr(toroni_error_message(), "the value of a has 1020 bytes") != NULL);
    OK(toroni_last_missing(&missing));
    CHECK(strcmp(missing.topic, "a") == 0 && missing.sequence == sequence && missing.length == 1020);
    CHECK(pthread_create(&thread, NULL, has_missed_nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
    OK(toroni_bus_retained_matching(bus, "a", &values));
    CHECK(toroni_values_count(values) == 1);
    value = toroni_values_at(values, 0);
    CHECK(value->status == TORONI_VALUE_MISSING && strcmp(value->topic, "a") == 0 && value->sequence == sequence);
    CHECK(value->payload == NULL && value->payload_length == 0 && value->missing_length == 1020);
    CHECK(strstr(value->problem, "create it with more bytes") != NULL);
    toroni_values_close(values);
    OK(toroni_bus_take_stats(bus, &stats));
    CHECK(toroni_stats_bus(stats)->missing_values == 1 && toroni_stats_bus(stats)->max_retained_topics == 3);
    CHECK(toroni_stats_bus(stats)->retained_bytes == 4096);
    toroni_stats_close(stats);
    OK(toroni_bus_take_topics(bus, &topics));
    CHECK(toroni_topics_at(topics, 0)->value == TORONI_TOPIC_MISSING);
    CHECK(toroni_topics_at(topics, 0)->value_sequence == sequence && toroni_topics_at(topics, 0)->value_bytes == 1020);
    CHECK(toroni_topics_at(topics, toroni_topics_count(topics) - 1)->value == TORONI_TOPIC_NOT_RETAINED);
    toroni_topics_close(topics);

    late = asking(bus, "a");
    OK(toroni_publish(publisher, "next", 4));
    /* The newer message is in the stream, so nothing is missing. */
    OK(toroni_try_receive(late, &message));
    CHECK(says(&message, "next"));
    toroni_subscriber_close(late);
    OK(toroni_publish_within(plain, payload, 1020, TORONI_FOREVER, &sequence));
    lap(bus);
    late = asking(bus, "a");
    RETURNS(TORONI_VALUE_MISSING, toroni_try_receive(late, &message));
    CHECK(message.payload == NULL && toroni_subscriber_is_current(late));
    OK(toroni_last_missing(&missing));
    CHECK(strcmp(missing.topic, "a") == 0 && missing.sequence == sequence && missing.length == 1020);
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(late, &message));
    OK(toroni_publish(publisher, "short", 5));
    CHECK(holds(bus, "a", "short"));
    toroni_subscriber_close(late);
    toroni_publisher_close(other);
    toroni_publisher_close(third);
    toroni_publisher_close(plain);
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
}

void an_exclusive_publisher_retains_topics(void) {
    toroni_publisher_options options = TORONI_PUBLISHER_OPTIONS_INIT;
    toroni_bus *bus = open_bus(NULL);
    toroni_publisher *publisher;
    toroni_exclusive *exclusive;
    toroni_exclusive_topic *topic, *plain;
    toroni_values *values;
    uint64_t sequence;
    OK(toroni_exclusive_open(bus, 0, &exclusive));
    options.retained = 1;
    OK(toroni_exclusive_open_topic(exclusive, "t", &options, &topic));
    OK(toroni_exclusive_open_topic(exclusive, "t", NULL, &plain));
    OK(toroni_exclusive_publish(exclusive, topic, "1", 1, TORONI_FOREVER, NULL));
    CHECK(holds(bus, "t", "1"));
    OK(toroni_exclusive_publish(exclusive, plain, "2", 1, TORONI_FOREVER, NULL));
    CHECK(holds(bus, "t", "2"));
    OK(toroni_exclusive_clear(exclusive, topic, TORONI_FOREVER, &sequence));
    CHECK(sequence == 2);
    RETURNS(TORONI_NO_MESSAGE, toroni_bus_retained(bus, "t", &values));
    RETURNS(TORONI_NOT_RETAINED, toroni_exclusive_clear(exclusive, plain, TORONI_NO_WAIT, &sequence));
    CHECK(sequence == 0);
    RETURNS(TORONI_EXCLUSIVE, toroni_bus_publisher(bus, "u", &options, &publisher));
    CHECK(publisher == NULL);
    toroni_exclusive_topic_close(topic);
    toroni_exclusive_topic_close(plain);
    toroni_exclusive_close(exclusive);
    toroni_bus_close(bus);
}

void what_cannot_be_retained_is_refused(void) {
    toroni_open_options opening = TORONI_OPEN_OPTIONS_INIT;
    toroni_publisher_options options = TORONI_PUBLISHER_OPTIONS_INIT;
    toroni_subscriber_options subscribing = TORONI_SUBSCRIBER_OPTIONS_INIT;
    const char *const pattern = "t";
    toroni_bus *bus = small_bus(1, 0), *other;
    toroni_publisher *publisher = retained(bus, "t"), *refused;
    toroni_subscriber *subscriber;
    toroni_inlet *inlet, *another;
    toroni_inlet_topic *topic;
    toroni_values *values;
    toroni_stats *stats;
    uint64_t sequence;
    options.retained = 1;
    /* The bytes are those of the default. */
    OK(toroni_bus_take_stats(bus, &stats));
    CHECK(toroni_stats_bus(stats)->max_retained_topics == 1 && toroni_stats_bus(stats)->retained_bytes == 448 << 10);
    toroni_stats_close(stats);
    RETURNS(TORONI_TOO_MANY_RETAINED, toroni_bus_publisher(bus, "u", &options, &refused));
    CHECK(refused == NULL && strstr(toroni_error_message(), "1 topics are retained") != NULL);
    OK(toroni_bus_publisher(bus, "t", NULL, &refused));
    RETURNS(TORONI_NOT_RETAINED, toroni_publisher_clear(refused, TORONI_FOREVER, &sequence));
    CHECK(strstr(toroni_error_message(), "retained") != NULL);
    toroni_publisher_close(refused);
    OK(toroni_inlet_open(bus, NULL, &inlet));
    OK(toroni_inlet_open(bus, NULL, &another));
    OK(toroni_inlet_open_topic(inlet, "u", &topic));
    RETURNS(TORONI_TOO_MANY_RETAINED, toroni_inlet_retain(inlet, topic));
    RETURNS(TORONI_FOREIGN_TOPIC, toroni_inlet_retain(another, topic));
    RETURNS(TORONI_INVALID_TOPIC, toroni_bus_retained(bus, "//", &values));
    RETURNS(TORONI_INVALID_PATTERN, toroni_bus_retained_matching(bus, "//", &values));
    toroni_inlet_topic_close(topic);
    toroni_inlet_close(inlet);
    toroni_inlet_close(another);

    opening.directory = directory, opening.retained_topics = 4097;
    RETURNS(TORONI_INVALID_SETTING, toroni_bus_open("b", &opening, &other));
    opening.retained_topics = 0, opening.retained_bytes = 1;
    RETURNS(TORONI_INVALID_SETTING, toroni_bus_open("b", &opening, &other));
    opening.retained_bytes = 8192;
    OK(toroni_bus_open("bytes_only", &opening, &other));
    /* A policy that is refused leaves no topic retained. */
    options.policy.kind = TORONI_POLICY_WAIT, options.policy.limit_ns = TORONI_FOREVER;
    RETURNS(TORONI_INVALID_SETTING, toroni_bus_publisher(other, "t", &options, &refused));
    options.policy.kind = TORONI_POLICY_DEFAULT, options.policy.limit_ns = 0;
    OK(toroni_bus_take_stats(other, &stats));
    CHECK(toroni_stats_bus(stats)->max_retained_topics == 512 && toroni_stats_bus(stats)->retained_bytes == 8192);
    CHECK(toroni_stats_bus(stats)->retained_topics == 0);
    toroni_stats_close(stats);
    toroni_bus_close(other);
    opening.retained_topics = TORONI_NO_RETAINED, opening.retained_bytes = 0;
    OK(toroni_bus_open("without_values", &opening, &other));
    RETURNS(TORONI_NO_VALUES, toroni_bus_publisher(other, "t", &options, &refused));
    subscribing.patterns = &pattern, subscribing.pattern_count = 1, subscribing.retained = 1;
    RETURNS(TORONI_NO_VALUES, toroni_bus_subscribe_with(other, &subscribing, &subscriber));
    CHECK(subscriber == NULL && strstr(toroni_error_message(), "keeps no values") != NULL);
    RETURNS(TORONI_NO_VALUES, toroni_bus_retained(other, "t", &values));
    RETURNS(TORONI_NO_VALUES, toroni_bus_retained_matching(other, "t", &values));
    OK(toroni_bus_take_stats(other, &stats));
    CHECK(toroni_stats_bus(stats)->max_retained_topics == 0);
    toroni_stats_close(stats);
    toroni_bus_close(other);
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
}
