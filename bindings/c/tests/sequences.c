/* Publishers that learn the sequences of their messages, and subscribers that hold messages. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND 1000000000ull

/* A bus with a ring of 64 KiB. */
static toroni_bus *bus_with(int policy) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    options.capacity = 1 << 16;
    options.policy.kind = policy;
    options.policy.limit_ns = TORONI_FOREVER;
    return open_bus(&options);
}

static const char payload[1016];

/* Returns the sequence of the first message that a new subscriber finds from `sequence` on. */
static uint64_t first_from(const toroni_bus *bus, uint64_t sequence) {
    toroni_subscriber_options options = TORONI_SUBSCRIBER_OPTIONS_INIT;
    const char *const pattern = "**";
    toroni_subscriber *subscriber;
    toroni_message message;
    options.patterns = &pattern, options.pattern_count = 1, options.not_gating = 1;
    options.start = TORONI_START_SEQUENCE, options.sequence = sequence;
    OK(toroni_bus_subscribe_with(bus, &options, &subscriber));
    OK(toroni_try_receive(subscriber, &message));
    toroni_subscriber_close(subscriber);
    return message.sequence;
}

static void drain(toroni_subscriber *subscriber) {
    toroni_message message;
    int status;
    while ((status = toroni_try_receive(subscriber, &message)) == TORONI_OK) continue;
    CHECK(status == TORONI_NO_MESSAGE);
}

static int fill_with(void *data, size_t length, void *context) {
    memcpy(data, context, length);
    return 0;
}

void publishers_learn_the_sequences_of_their_messages(void) {
    const toroni_bytes none[1] = {{NULL, 0}}, shared[2] = {{"5", 1}, {"6", 1}}, alone[2] = {{":", 1}, {";", 1}};
    toroni_bus *bus = open_bus(NULL);
    toroni_publisher *publisher;
    toroni_exclusive *exclusive;
    toroni_exclusive_topic *topic;
    toroni_subscriber *subscriber;
    toroni_message message;
    uint64_t sequence, sequences[12];
    size_t i;
    OK(toroni_bus_subscribe(bus, "numbered", &subscriber));
    OK(toroni_bus_publisher(bus, "numbered", NULL, &publisher));
    OK(toroni_publish_within(publisher, "1", 1, TORONI_FOREVER, &sequences[0]));
    OK(toroni_publish_within(publisher, "2", 1, TORONI_NO_WAIT, &sequences[1]));
    OK(toroni_publish_within(publisher, "3", 1, SECOND, &sequences[2]));
    OK(toroni_publish_in_place(publisher, 1, TORONI_FOREVER, fill_with, "4", &sequences[3]));
    OK(toroni_publish_batch(publisher, shared, 2, TORONI_FOREVER, &sequences[4]));
    sequences[5] = sequences[4] + 1;
    sequence = 9;
    OK(toroni_publish_batch(publisher, none, 0, TORONI_FOREVER, &sequence));
    CHECK(sequence == 0);
    OK(toroni_exclusive_open(bus, 0, &exclusive));
    RETURNS(TORONI_EXCLUSIVE, toroni_publish_within(publisher, "", 0, TORONI_FOREVER, &sequence));
    RETURNS(TORONI_EXCLUSIVE, toroni_publish_within(publisher, "", 0, TORONI_NO_WAIT, &sequence));
    OK(toroni_exclusive_open_topic(exclusive, "other", NULL, &topic));
    OK(toroni_exclusive_publish(exclusive, topic, "", 0, TORONI_FOREVER, NULL));
    toroni_exclusive_topic_close(topic);
    OK(toroni_exclusive_open_topic(exclusive, "numbered", NULL, &topic));
    OK(toroni_exclusive_publish(exclusive, topic, "7", 1, TORONI_FOREVER, &sequences[6]));
    OK(toroni_exclusive_publish(exclusive, topic, "8", 1, TORONI_NO_WAIT, &sequences[7]));
    OK(toroni_exclusive_publish(exclusive, topic, "9", 1, SECOND, &sequences[8]));
    OK(toroni_exclusive_publish_batch(exclusive, topic, alone, 2, SECOND, &sequences[9]));
    sequences[10] = sequences[9] + 1;
    OK(toroni_exclusive_publish_in_place(exclusive, topic, 1, SECOND, fill_with, "<", &sequences[11]));
    for (i = 0; i < 12; i++) {
        OK(toroni_try_receive(subscriber, &message));
        CHECK(*(const char *)message.payload == (char)('1' + i) && message.sequence == sequences[i]);
        CHECK(sequences[i] == (i < 6 ? i : i + 1));
    }
    toroni_exclusive_topic_close(topic);
    toroni_exclusive_close(exclusive);
    toroni_publisher_close(publisher);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}

static toroni_publisher *publisher;
static toroni_exclusive *exclusive;
static toroni_exclusive_topic *topic;

/* Publishes in a thread that has no subscriber, so that it does not wait for itself. */
static void *publish_in_vain(void *unused) {
    uint64_t sequence = 9;
    (void)unused;
    if (exclusive) {
        RETURNS(TORONI_FULL,
                toroni_exclusive_publish(exclusive, topic, payload, sizeof payload, TORONI_NO_WAIT, &sequence));
        RETURNS(TORONI_TIMEOUT,
                toroni_exclusive_publish(exclusive, topic, payload, sizeof payload, SECOND / 100, &sequence));
    } else {
        RETURNS(TORONI_FULL, toroni_publish_within(publisher, payload, sizeof payload, TORONI_NO_WAIT, &sequence));
        RETURNS(TORONI_TIMEOUT,
                toroni_publish_within(publisher, payload, sizeof payload, SECOND / 100, &sequence));
    }
    CHECK(sequence == 0);
    return NULL;
}

void a_call_for_a_sequence_has_a_time_limit(void) {
    toroni_bus *bus = bus_with(TORONI_POLICY_WAIT);
    toroni_subscriber *subscriber;
    pthread_t thread;
    uint64_t sequence, last = 0;
    int status, round;
    OK(toroni_bus_subscribe(bus, "**", &subscriber));
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    while ((status = toroni_publish_within(publisher, payload, sizeof payload, TORONI_NO_WAIT, &sequence)) == TORONI_OK)
        last = sequence;
    CHECK(status == TORONI_FULL && last > 30);
    for (round = 0; round < 2; round++) {
        CHECK(pthread_create(&thread, NULL, publish_in_vain, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        if (round == 0) {
            OK(toroni_exclusive_open(bus, 0, &exclusive));
            OK(toroni_exclusive_open_topic(exclusive, "t", NULL, &topic));
        }
    }
    drain(subscriber);
    OK(toroni_exclusive_publish(exclusive, topic, payload, sizeof payload, SECOND / 100, &sequence));
    CHECK(sequence == last + 1);
    toroni_exclusive_topic_close(topic);
    toroni_exclusive_close(exclusive);
    exclusive = NULL;
    toroni_publisher_close(publisher);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}

void messages_are_held_until_they_are_released(void) {
    toroni_bus *bus = bus_with(TORONI_POLICY_WAIT);
    toroni_subscriber *subscriber;
    uint64_t first = 0, count;
    int i;
    OK(toroni_bus_subscribe(bus, "**", &subscriber));
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    for (i = 0; i < 200; i++) {
        OK(toroni_publish_within(publisher, payload, sizeof payload, TORONI_FOREVER, &first));
        drain(subscriber);
    }
    CHECK(toroni_subscriber_held(subscriber) == TORONI_NO_SEQUENCE);
    OK(toroni_subscriber_hold(subscriber, first));
    CHECK(toroni_subscriber_held(subscriber) == first);
    for (count = 0; toroni_publish_within(publisher, payload, sizeof payload, TORONI_NO_WAIT, NULL) == TORONI_OK; count++)
        drain(subscriber);
    CHECK(count > 40 && count < 64 && first_from(bus, first) == first);
    /* This thread would wait for its own hold. */
    RETURNS(TORONI_WOULD_WAIT_FOR_ITSELF, toroni_publish(publisher, payload, sizeof payload));
    /* Each message takes one of 64 blocks. */
    OK(toroni_subscriber_hold(subscriber, first + 8));
    for (i = 0; i < 8; i++) OK(toroni_publish_within(publisher, payload, sizeof payload, TORONI_NO_WAIT, NULL));
    RETURNS(TORONI_FULL, toroni_publish_within(publisher, payload, sizeof payload, TORONI_NO_WAIT, NULL));
    /* What was given up is gone, and the hold stays. */
    RETURNS(TORONI_POSITION_UNAVAILABLE, toroni_subscriber_hold(subscriber, first));
    CHECK(strstr(toroni_error_message(), "no longer in the ring") != NULL);
    CHECK(toroni_subscriber_held(subscriber) == first + 8);
    OK(toroni_subscriber_release_hold(subscriber));
    OK(toroni_subscriber_release_hold(subscriber));
    CHECK(toroni_subscriber_held(subscriber) == TORONI_NO_SEQUENCE);
    for (i = 0; i < 200; i++) {
        drain(subscriber);
        OK(toroni_publish_within(publisher, payload, sizeof payload, TORONI_NO_WAIT, NULL));
    }
    toroni_publisher_close(publisher);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}

void a_hold_ends_when_the_policy_ends_it(void) {
    toroni_bus *bus = bus_with(TORONI_POLICY_OVERWRITE);
    toroni_subscriber_options options = TORONI_SUBSCRIBER_OPTIONS_INIT;
    toroni_subscriber *subscriber, *free_running;
    int i, child_status;
    pid_t child;
    OK(toroni_bus_subscribe(bus, "**", &subscriber));
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_subscriber_hold(subscriber, 0));
    child = fork();
    if (child == 0) {
        RETURNS(TORONI_FORKED, toroni_subscriber_hold(subscriber, 5));
        OK(toroni_subscriber_release_hold(subscriber));
        toroni_publisher_close(publisher);
        toroni_subscriber_close(subscriber);
        toroni_bus_close(bus);
        _exit(0);
    }
    CHECK(waitpid(child, &child_status, 0) == child && WIFEXITED(child_status) && WEXITSTATUS(child_status) == 0);
    CHECK(toroni_subscriber_held(subscriber) == 0);
    for (i = 0; i < 200; i++) {
        OK(toroni_publish(publisher, payload, sizeof payload));
        drain(subscriber);
    }
    CHECK(toroni_subscriber_held(subscriber) == TORONI_NO_SEQUENCE);
    RETURNS(TORONI_POSITION_UNAVAILABLE, toroni_subscriber_hold(subscriber, 0));
    options.not_gating = 1;
    OK(toroni_bus_subscribe_with(bus, &options, &free_running));
    RETURNS(TORONI_NOT_GATING, toroni_subscriber_hold(free_running, 200));
    toroni_subscriber_close(free_running);
    toroni_publisher_close(publisher);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}
