/* Publishing and receiving with every function. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ull

void settings_arrive(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus;
    toroni_stats *stats;
    const toroni_bus_stats *found;
    options.capacity = 1 << 16;
    options.topic_table_bytes = 8192;
    options.max_publishers = 3;
    options.max_subscribers = 5;
    options.lock = TORONI_LOCK_ROBUST;
    options.notify = TORONI_NOTIFY_DATAGRAM;
    options.flags = TORONI_FLAG_PERSISTENT;
    options.policy.kind = TORONI_POLICY_BOUNDED;
    options.policy.budget_ns = 5;
    options.policy.per_ns = SECOND;
    bus = open_bus(&options);
    OK(toroni_bus_take_stats(bus, &stats));
    found = toroni_stats_bus(stats);
    CHECK(found->capacity == 1 << 16 && found->topic_table_bytes == 8192);
    CHECK(found->max_publishers == 3 && found->max_subscribers == 5);
    CHECK(found->lock == TORONI_LOCK_ROBUST && found->notify == TORONI_NOTIFY_DATAGRAM);
    CHECK(found->persistent == 1 && found->policy.kind == TORONI_POLICY_BOUNDED);
    CHECK(found->policy.budget_ns == 5 && found->policy.per_ns == SECOND);
    CHECK(strcmp(toroni_bus_name(bus), "settings_arrive") == 0);
    CHECK(strncmp(toroni_bus_path(bus), directory, strlen(directory)) == 0);
    CHECK(strlen(toroni_bus_id(bus)) == 32);
    toroni_stats_close(stats);
    toroni_bus_close(bus);
}

static int write_number(void *data, size_t length, void *context) {
    memset(data, *(const char *)context, length);
    return 0;
}

void messages_arrive_in_every_way(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_publisher_options publishing = TORONI_PUBLISHER_OPTIONS_INIT;
    toroni_bus *bus;
    toroni_publisher *publisher, *above;
    toroni_subscriber *subscriber;
    toroni_message message;
    toroni_subscriber_stats seen;
    const toroni_bytes both[] = {{"four", 4}, {NULL, 0}};
    char seven = '7';
    size_t published = 99;

    options.flags = TORONI_FLAG_TIMESTAMPS;
    bus = open_bus(&options);
    OK(toroni_bus_subscribe(bus, "plant/*", &subscriber));
    OK(toroni_bus_publisher(bus, "plant/pump", NULL, &publisher));
    publishing.to_descendants = 1;
    OK(toroni_bus_publisher(bus, "plant", &publishing, &above));
    /* The publisher and the subscriber work without it. */
    toroni_bus_close(bus);
    CHECK(strcmp(toroni_publisher_topic(publisher), "plant/pump") == 0);
    CHECK(toroni_publisher_largest_message(publisher) > 2000000);

    OK(toroni_publish(publisher, "one", 3));
    OK(toroni_publish_within(publisher, "two", 3, TORONI_NO_WAIT, NULL));
    OK(toroni_publish_within(publisher, "three", 5, SECOND, NULL));
    OK(toroni_publish_batch(publisher, both, 2, TORONI_FOREVER, NULL));
    OK(toroni_publish_burst(publisher, both, 2, TORONI_FOREVER, &published));
    CHECK(published == 2);
    OK(toroni_publish_burst(publisher, both, 1, TORONI_FOREVER, NULL));
    OK(toroni_publish_in_place(publisher, 3, TORONI_FOREVER, write_number, &seven, NULL));
    OK(toroni_publish(above, "down", 4));
    OK(toroni_publish_within(publisher, "last", 4, TORONI_FOREVER, NULL));
    {
        const char *const expected[] = {"one", "two", "three", "four", "", "four", "", "four", "777", "down", "last"};
        size_t i;
        CHECK(toroni_subscriber_lag_bytes(subscriber) > 0);
        for (i = 0; i < sizeof expected / sizeof *expected; i++) {
            const uint64_t position = toroni_subscriber_position(subscriber);
            if (i % 3 == 0) OK(toroni_receive(subscriber, &message));
            if (i % 3 == 1) OK(toroni_try_receive(subscriber, &message));
            if (i % 3 == 2) OK(toroni_receive_timeout(subscriber, SECOND, &message));
            CHECK(says(&message, expected[i]) && message.payload != NULL);
            CHECK(message.sequence == i && message.position == position);
            CHECK(message.next_position == toroni_subscriber_position(subscriber));
            CHECK(message.flags & TORONI_MESSAGE_HAS_TIMESTAMP && message.timestamp_ns > 1600000000 * SECOND);
            CHECK(!(message.flags & TORONI_MESSAGE_TO_DESCENDANTS) == (i != 9));
            CHECK(message.topic_length == strlen(i == 9 ? "plant" : "plant/pump"));
            CHECK(strncmp(message.topic, "plant/pump", message.topic_length) == 0);
        }
    }
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(subscriber, &message));
    RETURNS(TORONI_NO_MESSAGE, toroni_receive_timeout(subscriber, 1000, &message));
    OK(toroni_subscriber_add_pattern(subscriber, "plant"));
    OK(toroni_publish(above, "pump", 4));
    OK(toroni_receive(subscriber, &message));
    CHECK(says(&message, "pump"));
    OK(toroni_subscriber_get_stats(subscriber, &seen));
    CHECK(seen.received == 12 && seen.lost_messages == 0 && seen.lapses == 0);
    CHECK(toroni_subscriber_lag_bytes(subscriber) == 0);
    toroni_publisher_close(above);
    toroni_publisher_close(publisher);
    toroni_subscriber_close(subscriber);
}

static toroni_publisher *within;
static int within_answered;

/* Publishes within a fill function, which is not allowed, and closes the publisher that calls it. */
static int misbehave(void *data, size_t length, void *context) {
    memset(data, 'x', length);
    within_answered = toroni_publish(within, "inner", 5);
    toroni_publisher_close(within);
    return context != NULL;
}

void a_message_that_is_given_up_is_not_published(void) {
    toroni_bus *bus = open_bus(NULL);
    toroni_subscriber *subscriber;
    toroni_message message;
    toroni_publisher *publisher;
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    OK(toroni_bus_publisher(bus, "t", NULL, &within));
    RETURNS(TORONI_ABORTED, toroni_publish_in_place(within, 100, TORONI_FOREVER, misbehave, bus, NULL));
    CHECK(within_answered == TORONI_REENTRANT);
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(subscriber, &message));
    OK(toroni_bus_publisher(bus, "t", NULL, &within));
    OK(toroni_publish_in_place(within, 100, TORONI_FOREVER, misbehave, NULL, NULL));
    /* The lock was released. */
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_publish_within(publisher, "next", 4, TORONI_NO_WAIT, NULL));
    OK(toroni_receive(subscriber, &message));
    CHECK(message.payload_length == 100 && message.sequence == 0);
    OK(toroni_receive(subscriber, &message));
    CHECK(says(&message, "next") && message.sequence == 1);
    toroni_publisher_close(publisher);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}

/* A bus with a ring of 64 KiB whose publishers never wait. */
static toroni_bus *small_bus(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    options.capacity = 1 << 16;
    options.policy.kind = TORONI_POLICY_OVERWRITE;
    return open_bus(&options);
}

static toroni_publisher *in_other_thread;

/* Publishes until the ring is full because of a subscriber of another thread. */
static void *publish_in_vain(void *unused) {
    char payload[8000] = {0};
    const toroni_bytes group[] = {{payload, 2000}, {payload, sizeof payload}};
    size_t published = 99;
    int status;
    (void)unused;
    do status = toroni_publish_within(in_other_thread, payload, sizeof payload, TORONI_NO_WAIT, NULL);
    while (status == TORONI_OK);
    CHECK(status == TORONI_FULL);
    CHECK(strcmp(toroni_error_message(), toroni_status_text(TORONI_FULL)) == 0);
    RETURNS(TORONI_TIMEOUT, toroni_publish_within(in_other_thread, payload, sizeof payload, 1000000, NULL));
    RETURNS(TORONI_TIMEOUT, toroni_publish_batch(in_other_thread, group, 2, 1000000, NULL));
    RETURNS(TORONI_TIMEOUT, toroni_publish_burst(in_other_thread, group + 1, 1, 1000000, &published));
    CHECK(published == 0);
    return NULL;
}

void waits_for_slow_subscribers_have_limits(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus;
    toroni_subscriber *subscriber;
    toroni_message message;
    pthread_t thread;
    char payload[8000] = {0};
    size_t published = 0;
    const toroni_bytes one = {"1", 1};
    options.capacity = 1 << 16;
    options.policy.kind = TORONI_POLICY_WAIT;
    options.policy.limit_ns = TORONI_FOREVER;
    bus = open_bus(&options);
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(subscriber, &message));
    OK(toroni_bus_publisher(bus, "t", NULL, &in_other_thread));
    CHECK(pthread_create(&thread, NULL, publish_in_vain, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    /* In the thread of the subscriber, the wait would never end. */
    RETURNS(TORONI_WOULD_WAIT_FOR_ITSELF,
            toroni_publish_within(in_other_thread, payload, sizeof payload, TORONI_FOREVER, NULL));
    while (toroni_try_receive(subscriber, &message) == TORONI_OK) continue;
    OK(toroni_publish_batch(in_other_thread, &one, 1, TORONI_FOREVER, NULL));
    OK(toroni_publish_burst(in_other_thread, &one, 1, 1000, &published));
    CHECK(published == 1);
    toroni_publisher_close(in_other_thread);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}

/* One subscriber has received a message, but not all; the other has never received. */
void a_thread_that_publishes_to_itself_gets_an_error(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus;
    toroni_publisher *publisher;
    toroni_subscriber *subscriber;
    toroni_message message;
    char payload[100] = {0};
    int receives, i, status = TORONI_OK;
    options.capacity = 1 << 16;
    options.policy.kind = TORONI_POLICY_WAIT;
    options.policy.limit_ns = TORONI_FOREVER;
    bus = open_bus(&options);
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    for (receives = 0; receives < 2; receives++) {
        OK(toroni_bus_subscribe(bus, "t", &subscriber));
        OK(toroni_publish(publisher, payload, sizeof payload));
        if (receives) OK(toroni_receive(subscriber, &message));
        for (i = 0; i < 2000 && (status = toroni_publish(publisher, payload, sizeof payload)) == TORONI_OK; i++) continue;
        CHECK(status == TORONI_WOULD_WAIT_FOR_ITSELF);
        OK(toroni_try_receive(subscriber, &message));
        toroni_subscriber_close(subscriber);
    }
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
}

void losses_are_exact(void) {
    toroni_bus *bus = small_bus();
    toroni_publisher *publisher;
    toroni_subscriber *subscriber;
    toroni_message message;
    toroni_loss loss;
    toroni_subscriber_stats seen;
    char payload[1024] = {0};
    uint64_t i, first;
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    OK(toroni_subscriber_last_loss(subscriber, &loss));
    CHECK(loss.messages == 0 && loss.bytes == 0);
    for (i = 0; i < 200; i++) OK(toroni_publish(publisher, payload, sizeof payload));
    RETURNS(TORONI_LAPPED, toroni_receive(subscriber, &message));
    OK(toroni_subscriber_last_loss(subscriber, &loss));
    CHECK(loss.messages > 100 && loss.messages < 200 && loss.bytes == loss.messages * (1024 + 8));
    OK(toroni_receive(subscriber, &message));
    first = message.sequence;
    CHECK(first == loss.messages);
    for (i = first + 1; i < 200; i++) {
        OK(toroni_try_receive(subscriber, &message));
        CHECK(message.sequence == i);
    }
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(subscriber, &message));
    OK(toroni_subscriber_get_stats(subscriber, &seen));
    CHECK(seen.received == 200 - first && seen.lost_messages == first && seen.lapses == 1);
    toroni_subscriber_close(subscriber);
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
}

void old_messages_are_passed_over(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_subscriber_options wanted = TORONI_SUBSCRIBER_OPTIONS_INIT;
    const char *pattern = "t";
    toroni_bus *bus;
    toroni_publisher *publisher;
    toroni_subscriber *newest, *fresh, *refused;
    toroni_message message;
    toroni_loss loss;
    toroni_subscriber_stats seen;
    char payload[1024] = {0};
    int i;
    options.capacity = 1 << 16, options.policy.kind = TORONI_POLICY_OVERWRITE;
    options.flags = TORONI_FLAG_TIMESTAMPS;
    bus = open_bus(&options);
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    wanted.patterns = &pattern, wanted.pattern_count = 1;
    wanted.max_age_ns = 1;
    OK(toroni_bus_subscribe_with(bus, &wanted, &fresh));
    wanted.max_age_ns = 3600 * SECOND, wanted.after_loss = TORONI_CONTINUE_NEWEST;
    OK(toroni_bus_subscribe_with(bus, &wanted, &newest));
    for (i = 0; i < 200; i++) OK(toroni_publish(publisher, payload, sizeof payload));
    RETURNS(TORONI_LAPPED, toroni_receive(newest, &message));
    OK(toroni_subscriber_last_loss(newest, &loss));
    CHECK(loss.messages == 199 && loss.bytes == 199 * (1024 + 8 + 8));
    OK(toroni_receive(newest, &message));
    CHECK(message.sequence == 199);
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(newest, &message));
    OK(toroni_subscriber_get_stats(newest, &seen));
    CHECK(seen.received == 1 && seen.lost_messages == 199 && seen.stale == 0);

    RETURNS(TORONI_LAPPED, toroni_try_receive(fresh, &message));
    OK(toroni_subscriber_last_loss(fresh, &loss));
    CHECK(loss.messages < 199);
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(fresh, &message));
    OK(toroni_subscriber_get_stats(fresh, &seen));
    CHECK(seen.received == 0 && seen.lost_messages == loss.messages && seen.stale == 200 - loss.messages);

    wanted.after_loss = 2;
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_bus_subscribe_with(bus, &wanted, &refused));
    toroni_subscriber_close(newest);
    toroni_subscriber_close(fresh);
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
}

void messages_in_place_are_validated(void) {
    toroni_bus *bus = small_bus();
    toroni_publisher *publisher;
    toroni_subscriber *subscriber;
    toroni_message message;
    toroni_loss loss;
    toroni_subscriber_stats seen;
    char payload[1000], sum = 0;
    uint64_t run;
    int i;
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_validate(subscriber));
    RETURNS(TORONI_NO_MESSAGE, toroni_receive_in_place(subscriber, 0, &message));
    RETURNS(TORONI_NO_MESSAGE, toroni_receive_in_place(subscriber, 1000, &message));
    RETURNS(TORONI_NO_MESSAGE, toroni_next_in_place(subscriber, &message));
    CHECK(toroni_subscriber_run_number(subscriber) == 0);
    for (i = 0; i < 5; i++) {
        memset(payload, i, sizeof payload);
        OK(toroni_publish(publisher, payload, sizeof payload));
    }
    OK(toroni_receive_in_place(subscriber, TORONI_FOREVER, &message));
    for (i = 0;; i++) {
        CHECK(message.payload_length == sizeof payload && message.sequence == (uint64_t)i);
        CHECK(message.topic_length == 1 && *message.topic == 't');
        sum = (char)(sum + ((const char *)message.payload)[999]);
        if (toroni_next_in_place(subscriber, &message) != TORONI_OK) break;
    }
    /* A run is at most a 64th of the ring long. */
    OK(toroni_validate(subscriber));
    while (i < 4) {
        OK(toroni_receive_in_place(subscriber, SECOND, &message));
        sum = (char)(sum + ((const char *)message.payload)[999]);
        OK(toroni_validate(subscriber));
        i++;
    }
    CHECK(sum == 0 + 1 + 2 + 3 + 4);

    /* Overwritten while it is read. */
    OK(toroni_publish(publisher, payload, sizeof payload));
    OK(toroni_receive_in_place(subscriber, 0, &message));
    OK(toroni_validate(subscriber));
    run = toroni_subscriber_run_number(subscriber);
    /* Neither call ends the run. */
    CHECK(toroni_subscriber_slot(subscriber) == 0);
    CHECK(run >= 2 && toroni_subscriber_run_number(subscriber) == run);
    for (i = 0; i < 200; i++) OK(toroni_publish(publisher, payload, sizeof payload));
    RETURNS(TORONI_LAPPED, toroni_validate(subscriber));
    OK(toroni_subscriber_last_loss(subscriber, &loss));
    CHECK(loss.messages == 1);
    OK(toroni_subscriber_get_stats(subscriber, &seen));
    CHECK(seen.received == 6 && seen.lost_messages == 0 && seen.lapses == 0 && seen.losses == 0);
    RETURNS(TORONI_LAPPED, toroni_receive_in_place(subscriber, 0, &message));
    OK(toroni_subscriber_last_loss(subscriber, &loss));
    OK(toroni_receive_in_place(subscriber, 0, &message));
    CHECK(message.sequence == 6 + loss.messages);
    /* Any other call ends the run. */
    OK(toroni_validate(subscriber));
    CHECK(toroni_subscriber_run_number(subscriber) == run + 1);
    RETURNS(TORONI_OK, toroni_try_receive(subscriber, &message));
    CHECK(toroni_subscriber_run_number(subscriber) == 0);
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_validate(subscriber));
    OK(toroni_receive_in_place(subscriber, 0, &message));
    /* Closed during a run. */
    toroni_subscriber_close(subscriber);
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
}

struct passed_on {
    toroni_subscriber *from;
    const void *payload;
};

/* Copies a message in place as toroni.h describes: validates after the last read. */
static int pass_on(void *data, size_t length, void *context) {
    const struct passed_on *message = context;
    memcpy(data, message->payload, length);
    return toroni_validate(message->from);
}

void messages_are_passed_on_in_place(void) {
    toroni_bus *bus = small_bus();
    toroni_publisher *first, *second;
    toroni_subscriber *between, *last;
    toroni_message message;
    struct passed_on passed;
    char payload[1024];
    int i;
    memset(payload, 'x', sizeof payload);
    OK(toroni_bus_publisher(bus, "a", NULL, &first));
    OK(toroni_bus_publisher(bus, "b", NULL, &second));
    OK(toroni_bus_subscribe(bus, "a", &between));
    OK(toroni_bus_subscribe(bus, "b", &last));
    OK(toroni_publish(first, "some bytes that travel on", 25));
    OK(toroni_receive_in_place(between, 0, &message));
    passed.from = between, passed.payload = message.payload;
    OK(toroni_publish_in_place(second, message.payload_length, TORONI_FOREVER, pass_on, &passed, NULL));
    OK(toroni_receive(last, &message));
    CHECK(says(&message, "some bytes that travel on"));

    /* Overwritten before it is passed on. */
    OK(toroni_publish(first, payload, sizeof payload));
    OK(toroni_receive_in_place(between, 0, &message));
    passed.payload = message.payload;
    for (i = 0; i < 200; i++) OK(toroni_publish(first, payload, sizeof payload));
    RETURNS(TORONI_ABORTED,
            toroni_publish_in_place(second, message.payload_length, TORONI_FOREVER, pass_on, &passed, NULL));
    /* It was overtaken by what is for others alone. */
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(last, &message));
    toroni_subscriber_close(last);
    toroni_subscriber_close(between);
    toroni_publisher_close(second);
    toroni_publisher_close(first);
    toroni_bus_close(bus);
}

static toroni_subscriber *blocked;
static atomic_int is_through;
static volatile sig_atomic_t alarm_came;

static void *receive(void *unused) {
    toroni_message message;
    (void)unused;
    RETURNS(TORONI_INTERRUPTED, toroni_receive(blocked, &message));
    RETURNS(TORONI_INTERRUPTED, toroni_receive_in_place(blocked, TORONI_FOREVER, &message));
    RETURNS(TORONI_INTERRUPTED, toroni_receive_timeout(blocked, TORONI_FOREVER, &message));
    is_through = 1;
    return NULL;
}

static void interrupt(int signal) {
    (void)signal;
    alarm_came = 1;
    toroni_subscriber_interrupt(blocked);
}

void blocked_calls_end_when_interrupted(void) {
    toroni_bus *bus = open_bus(NULL);
    toroni_subscriber_options options = TORONI_SUBSCRIBER_OPTIONS_INIT;
    const char *const patterns[] = {"a", "b/**"};
    struct sigaction action;
    toroni_message message;
    pthread_t thread;
    options.patterns = patterns;
    options.pattern_count = 2;
    options.wait = TORONI_WAIT_BLOCK;
    options.name = "sleeper";
    OK(toroni_bus_subscribe_with(bus, &options, &blocked));
    CHECK(pthread_create(&thread, NULL, receive, NULL) == 0);
    /* Several requests before the next call count as one, so interrupt until the thread has ended. */
    while (!is_through) {
        const struct timespec pause = {0, 1000000};
        toroni_subscriber_interrupt(blocked);
        nanosleep(&pause, NULL);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    /* One request may be left. A call that does not wait leaves it to the next call. */
    toroni_subscriber_interrupt(blocked);
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(blocked, &message));
    RETURNS(TORONI_NO_MESSAGE, toroni_receive_timeout(blocked, 0, &message));
    RETURNS(TORONI_NO_MESSAGE, toroni_receive_in_place(blocked, 0, &message));
    RETURNS(TORONI_INTERRUPTED, toroni_receive_timeout(blocked, 60 * SECOND, &message));
    /* From a signal handler in the thread that waits. */
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupt;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(!alarm_came);
    alarm(1);
    RETURNS(TORONI_INTERRUPTED, toroni_receive(blocked, &message));
    CHECK(alarm_came);
    /* The handler must not use the subscriber any longer. */
    action.sa_handler = SIG_DFL;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    toroni_subscriber_close(blocked);
    toroni_bus_close(bus);
}

void a_descriptor_is_readable_when_there_are_messages(void) {
    toroni_bus *bus = open_bus(NULL);
    toroni_publisher *publisher;
    toroni_subscriber *subscriber;
    toroni_message message;
    struct pollfd watched = {-1, POLLIN, 0};
    int i;
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    OK(toroni_subscriber_fd(subscriber, &watched.fd));
    CHECK(watched.fd >= 0);
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(subscriber, &message));
    CHECK(poll(&watched, 1, 0) == 0);
    for (i = 0; i < 3; i++) {
        OK(toroni_publish(publisher, "m", 1));
        CHECK(poll(&watched, 1, 60000) == 1);
        OK(toroni_try_receive(subscriber, &message));
        RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(subscriber, &message));
    }
    toroni_subscriber_close(subscriber);
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
}

void starts_and_positions(void) {
    toroni_bus *bus = open_bus(NULL);
    toroni_subscriber_options options = TORONI_SUBSCRIBER_OPTIONS_INIT;
    const char *const pattern = "**";
    toroni_publisher *publisher;
    toroni_subscriber *subscriber;
    toroni_message message;
    options.patterns = &pattern;
    options.pattern_count = 1;
    options.not_gating = 1;
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_publish(publisher, "a", 1));
    OK(toroni_publish(publisher, "b", 1));
    OK(toroni_bus_subscribe_with(bus, &options, &subscriber));
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(subscriber, &message));
    toroni_subscriber_close(subscriber);
    options.start = TORONI_START_OLDEST;
    OK(toroni_bus_subscribe_with(bus, &options, &subscriber));
    OK(toroni_try_receive(subscriber, &message));
    CHECK(says(&message, "a"));
    options.start = TORONI_START_POSITION;
    options.position = message.next_position;
    toroni_subscriber_close(subscriber);
    OK(toroni_bus_subscribe_with(bus, &options, &subscriber));
    OK(toroni_try_receive(subscriber, &message));
    CHECK(says(&message, "b"));
    toroni_subscriber_close(subscriber);
    options.position = 1 << 20;
    RETURNS(TORONI_POSITION_UNAVAILABLE, toroni_bus_subscribe_with(bus, &options, &subscriber));
    options.start = TORONI_START_SEQUENCE;
    options.sequence = 1;
    OK(toroni_bus_subscribe_with(bus, &options, &subscriber));
    OK(toroni_try_receive(subscriber, &message));
    CHECK(says(&message, "b") && message.sequence == 1);
    toroni_subscriber_close(subscriber);
    options.sequence = 3;
    RETURNS(TORONI_POSITION_UNAVAILABLE, toroni_bus_subscribe_with(bus, &options, &subscriber));
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
}

void statistics_list_participants(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus;
    toroni_publisher *publisher;
    toroni_subscriber *subscriber;
    toroni_stats *stats;
    int fd;
    options.participant_name = "tester";
    bus = open_bus(&options);
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    OK(toroni_publish(publisher, "12345678", 8));
    OK(toroni_subscriber_fd(subscriber, &fd));
    OK(toroni_bus_take_stats(bus, &stats));
    CHECK(toroni_stats_bus(stats)->sequence == 1 && toroni_stats_bus(stats)->tail == 16);
    CHECK(toroni_stats_bus(stats)->topics == 1 && toroni_stats_bus(stats)->policy.limit_ns == SECOND / 10);
    CHECK(toroni_stats_bus(stats)->sees_publishers && toroni_stats_bus(stats)->sees_subscribers);
    CHECK(toroni_stats_publisher_count(stats) == 1 && toroni_stats_subscriber_count(stats) == 1);
    CHECK(strcmp(toroni_stats_publisher(stats, 0)->name, "tester") == 0);
    CHECK(toroni_stats_publisher(stats, 0)->messages == 1 && toroni_stats_publisher(stats, 0)->bytes == 16);
    CHECK(toroni_stats_publisher(stats, 0)->alive == 1 && !toroni_stats_publisher(stats, 0)->dumping);
    CHECK(!toroni_stats_subscriber(stats, 0)->dumping);
    CHECK(toroni_stats_publisher(stats, 0)->pid == (uint32_t)getpid());
    CHECK(toroni_stats_publisher(stats, 0)->same_pid_namespace == 1);
    CHECK(toroni_stats_publisher(stats, 0)->started_ns >= toroni_stats_bus(stats)->created_ns);
    CHECK(toroni_stats_bus(stats)->created_ns > 1600000000 * SECOND);
    CHECK(toroni_stats_subscriber(stats, 0)->started_ns >= toroni_stats_publisher(stats, 0)->started_ns);
    CHECK(toroni_stats_subscriber(stats, 0)->same_pid_namespace == 1);
    CHECK(toroni_stats_subscriber(stats, 0)->slot == toroni_subscriber_slot(subscriber));
    CHECK(toroni_stats_lock_owner(stats) == NULL);
    CHECK(toroni_stats_socket_count(stats) == 1 && toroni_stats_socket(stats, 1) == NULL);
    CHECK(strcmp(toroni_stats_socket(stats, 0), "0.1") == 0);
    CHECK(toroni_stats_subscriber(stats, 0)->gating == 1);
    CHECK(toroni_stats_subscriber(stats, 0)->lag_bytes == 16);
    CHECK(toroni_stats_subscriber(stats, 0)->patterns_truncated == 0);
    CHECK(toroni_stats_subscriber(stats, 0)->pattern_count == 1);
    CHECK(toroni_stats_publisher(stats, 1) == NULL && toroni_stats_subscriber(stats, SIZE_MAX) == NULL);
    /* A snapshot outlives the handles that it describes. */
    toroni_subscriber_close(subscriber);
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
    CHECK(strcmp(toroni_stats_publisher(stats, 0)->name, "tester") == 0);
    CHECK(strcmp(toroni_stats_subscriber(stats, 0)->patterns[0], "t") == 0);
    toroni_stats_close(stats);
}

/* Checks, from another thread, that this process holds the lock. */
static void *check_lock_owner(void *context) {
    const toroni_lock_owner *owner;
    toroni_stats *stats;
    OK(toroni_bus_take_stats(context, &stats));
    owner = toroni_stats_lock_owner(stats);
    CHECK(owner != NULL && owner->alive == 1 && !owner->stopped && !owner->dumping && !owner->exclusive);
    CHECK(owner->pid == (uint32_t)getpid());
    CHECK(owner->slot == (toroni_stats_bus(stats)->lock == TORONI_LOCK_ROBUST ? TORONI_NO_SLOT : 0));
    toroni_stats_close(stats);
    return NULL;
}

static int fill_while_observed(void *data, size_t length, void *context) {
    pthread_t thread;
    memset(data, 0, length);
    CHECK(pthread_create(&thread, NULL, check_lock_owner, context) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}

void statistics_name_the_lock_owner(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *buses[2];
    toroni_publisher *publisher;
    size_t i;
    buses[0] = open_bus(NULL);
    options.directory = directory;
    options.lock = TORONI_LOCK_ROBUST;
    OK(toroni_bus_open("robust", &options, &buses[1]));
    for (i = 0; i < 2; i++) {
        OK(toroni_bus_publisher(buses[i], "t", NULL, &publisher));
        OK(toroni_publish_in_place(publisher, 8, TORONI_FOREVER, fill_while_observed, buses[i], NULL));
        toroni_publisher_close(publisher);
        toroni_bus_close(buses[i]);
    }
}

void multicast_groups_are_chosen_and_reported(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    const uint8_t group[4] = {239, 1, 2, 3};
    toroni_bus *bus;
    toroni_stats *stats;
    options.notify = TORONI_NOTIFY_MULTICAST;
    memcpy(options.multicast_address, group, sizeof group);
    options.multicast_port = 4567;
    bus = open_bus(&options);
    OK(toroni_bus_take_stats(bus, &stats));
    CHECK(toroni_stats_bus(stats)->notify == TORONI_NOTIFY_MULTICAST);
    CHECK(memcmp(toroni_stats_bus(stats)->multicast_address, group, sizeof group) == 0);
    CHECK(toroni_stats_bus(stats)->multicast_port == 4567);
    toroni_stats_close(stats);
    toroni_bus_close(bus);
}

void a_child_of_fork_gets_an_error(void) {
    toroni_bus *bus = open_bus(NULL);
    toroni_publisher *publisher;
    toroni_subscriber *subscriber;
    toroni_message message;
    pid_t child;
    int status;
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int fd = 7;
        RETURNS(TORONI_FORKED, toroni_publish(publisher, "", 0));
        RETURNS(TORONI_FORKED, toroni_try_receive(subscriber, &message));
        RETURNS(TORONI_FORKED, toroni_subscriber_add_pattern(subscriber, "u"));
        RETURNS(TORONI_FORKED, toroni_subscriber_fd(subscriber, &fd));
        CHECK(fd == -1);
        toroni_subscriber_close(subscriber);
        toroni_publisher_close(publisher);
        toroni_bus_close(bus);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(toroni_publish(publisher, "here", 4));
    OK(toroni_receive(subscriber, &message));
    CHECK(says(&message, "here"));
    toroni_subscriber_close(subscriber);
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
}
