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

void publishers_learn_the_sequences_of_their_messages(void) {
    toroni_bus *bus = open_bus(NULL);
    toroni_publisher *publisher;
    toroni_exclusive *exclusive;
    toroni_exclusive_topic *topic;
    toroni_subscriber *subscriber;
    toroni_message message;
    uint64_t sequence, sequences[8];
    size_t i;
    OK(toroni_bus_subscribe(bus, "numbered", &subscriber));
    OK(toroni_bus_publisher(bus, "numbered", NULL, &publisher));
    OK(toroni_publish_numbered(publisher, "1", 1, &sequences[0]));
    OK(toroni_try_publish_numbered(publisher, "2", 1, &sequences[1]));
    OK(toroni_publish_numbered_timeout(publisher, "3", 1, SECOND, &sequences[2]));
    OK(toroni_publish_numbered_timeout(publisher, "4", 1, TORONI_FOREVER, &sequences[3]));
    OK(toroni_exclusive_open(bus, 0, &exclusive));
    RETURNS(TORONI_EXCLUSIVE, toroni_publish_numbered(publisher, "", 0, &sequence));
    RETURNS(TORONI_EXCLUSIVE, toroni_try_publish_numbered(publisher, "", 0, &sequence));
    OK(toroni_exclusive_open_topic(exclusive, "other", NULL, &topic));
    OK(toroni_exclusive_publish(exclusive, topic, "", 0));
    toroni_exclusive_topic_close(topic);
    OK(toroni_exclusive_open_topic(exclusive, "numbered", NULL, &topic));
    OK(toroni_exclusive_publish_numbered(exclusive, topic, "5", 1, &sequences[4]));
    OK(toroni_exclusive_try_publish_numbered(exclusive, topic, "6", 1, &sequences[5]));
    OK(toroni_exclusive_publish_numbered_timeout(exclusive, topic, "7", 1, SECOND, &sequences[6]));
    OK(toroni_exclusive_publish_numbered_timeout(exclusive, topic, "8", 1, TORONI_FOREVER, &sequences[7]));
    for (i = 0; i < 8; i++) {
        OK(toroni_try_receive(subscriber, &message));
        CHECK(*(const char *)message.payload == (char)('1' + i) && message.sequence == sequences[i]);
        CHECK(sequences[i] == (i < 4 ? i : i + 1));
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
                toroni_exclusive_try_publish_numbered(exclusive, topic, payload, sizeof payload, &sequence));
        RETURNS(TORONI_TIMEOUT, toroni_exclusive_publish_numbered_timeout(exclusive, topic, payload, sizeof payload,
                                                                          SECOND / 100, &sequence));
    } else {
        RETURNS(TORONI_FULL, toroni_try_publish_numbered(publisher, payload, sizeof payload, &sequence));
        RETURNS(TORONI_TIMEOUT,
                toroni_publish_numbered_timeout(publisher, payload, sizeof payload, SECOND / 100, &sequence));
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
    while ((status = toroni_try_publish_numbered(publisher, payload, sizeof payload, &sequence)) == TORONI_OK)
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
    OK(toroni_exclusive_publish_numbered_timeout(exclusive, topic, payload, sizeof payload, SECOND / 100, &sequence));
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
    uint64_t sequence, first = 0, count;
    int i;
    OK(toroni_bus_subscribe(bus, "**", &subscriber));
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    for (i = 0; i < 200; i++) {
        OK(toroni_publish_numbered(publisher, payload, sizeof payload, &first));
        drain(subscriber);
    }
    CHECK(toroni_subscriber_held(subscriber) == TORONI_NO_SEQUENCE);
    OK(toroni_subscriber_hold(subscriber, first));
    CHECK(toroni_subscriber_held(subscriber) == first);
    for (count = 0; toroni_try_publish_numbered(publisher, payload, sizeof payload, &sequence) == TORONI_OK; count++)
        drain(subscriber);
    CHECK(count > 40 && count < 64 && first_from(bus, first) == first);
    /* This thread would wait for its own hold. */
    RETURNS(TORONI_WOULD_WAIT_FOR_ITSELF, toroni_publish(publisher, payload, sizeof payload));
    /* Each message takes one of 64 blocks. */
    OK(toroni_subscriber_hold(subscriber, first + 8));
    for (i = 0; i < 8; i++) OK(toroni_try_publish(publisher, payload, sizeof payload));
    RETURNS(TORONI_FULL, toroni_try_publish(publisher, payload, sizeof payload));
    /* What was given up is gone, and the hold stays. */
    RETURNS(TORONI_POSITION_UNAVAILABLE, toroni_subscriber_hold(subscriber, first));
    CHECK(strstr(toroni_error_message(), "no longer in the ring") != NULL);
    CHECK(toroni_subscriber_held(subscriber) == first + 8);
    OK(toroni_subscriber_release_hold(subscriber));
    OK(toroni_subscriber_release_hold(subscriber));
    CHECK(toroni_subscriber_held(subscriber) == TORONI_NO_SEQUENCE);
    for (i = 0; i < 200; i++) {
        drain(subscriber);
        OK(toroni_try_publish(publisher, payload, sizeof payload));
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
