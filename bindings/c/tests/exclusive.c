/* Exclusive publishers. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND 1000000000ull

/* Opens the bus of the running test again, under another name of the participant. */
static toroni_bus *open_as(const char *participant) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    options.participant_name = participant;
    return open_bus(&options);
}

static int fill(void *data, size_t length, void *context) {
    CHECK(length == 1);
    memcpy(data, context, length);
    return 0;
}

static int give_up(void *data, size_t length, void *context) {
    (void)data, (void)length, (void)context;
    return 1;
}

void an_exclusive_publisher_publishes_in_every_way(void) {
    toroni_publisher_options all = TORONI_PUBLISHER_OPTIONS_INIT;
    const toroni_bytes payloads[2] = {{"5", 1}, {"6", 1}}, more[2] = {{"7", 1}, {"8", 1}};
    const char *const expected = "12345678567890";
    toroni_bus *bus = open_bus(NULL);
    toroni_subscriber *subscriber, *below;
    toroni_exclusive *exclusive;
    toroni_exclusive_topic *topic, *to_descendants;
    toroni_message message;
    size_t published = 9, i;
    OK(toroni_bus_subscribe(bus, "**", &subscriber));
    OK(toroni_bus_subscribe(bus, "a/below", &below));
    OK(toroni_exclusive_open(bus, 0, &exclusive));
    OK(toroni_exclusive_set_always_fenced(exclusive, 1));
    OK(toroni_exclusive_open_topic(exclusive, "a", NULL, &topic));
    all.to_descendants = 1;
    OK(toroni_exclusive_open_topic(exclusive, "a", &all, &to_descendants));
    CHECK(toroni_exclusive_topic_largest_message(topic) > 1 << 20);
    OK(toroni_exclusive_publish(exclusive, topic, "1", 1, TORONI_FOREVER, NULL));
    OK(toroni_exclusive_publish(exclusive, topic, "2", 1, TORONI_NO_WAIT, NULL));
    OK(toroni_exclusive_publish(exclusive, topic, "3", 1, SECOND, NULL));
    OK(toroni_exclusive_publish(exclusive, topic, "4", 1, TORONI_FOREVER, NULL));
    OK(toroni_exclusive_publish_batch(exclusive, topic, payloads, 2, TORONI_FOREVER, NULL));
    OK(toroni_exclusive_publish_batch(exclusive, topic, more, 2, SECOND, NULL));
    OK(toroni_exclusive_publish_burst(exclusive, topic, payloads, 2, TORONI_FOREVER, &published));
    CHECK(published == 2);
    OK(toroni_exclusive_publish_burst(exclusive, topic, more, 2, SECOND, NULL));
    OK(toroni_exclusive_publish_in_place(exclusive, topic, 1, TORONI_FOREVER, fill, "9", NULL));
    RETURNS(TORONI_ABORTED,
            toroni_exclusive_publish_in_place(exclusive, topic, 1, TORONI_FOREVER, give_up, NULL, NULL));
    OK(toroni_exclusive_publish(exclusive, to_descendants, "0", 1, TORONI_FOREVER, NULL));
    for (i = 0; i < strlen(expected); i++) {
        OK(toroni_try_receive(subscriber, &message));
        CHECK(message.payload_length == 1 && *(const char *)message.payload == expected[i] && message.sequence == i);
    }
    OK(toroni_try_receive(below, &message));
    CHECK(says(&message, "0"));
    RETURNS(TORONI_NO_MESSAGE, toroni_try_receive(below, &message));
    toroni_exclusive_close(exclusive);
    /* The topic outlives its publisher, and serves the next one. */
    OK(toroni_exclusive_open(bus, TORONI_FOREVER, &exclusive));
    OK(toroni_exclusive_publish(exclusive, topic, "next", 4, TORONI_FOREVER, NULL));
    OK(toroni_try_receive(subscriber, &message));
    CHECK(says(&message, "next"));
    toroni_exclusive_topic_close(to_descendants);
    toroni_exclusive_topic_close(topic);
    toroni_exclusive_close(exclusive);
    toroni_subscriber_close(below);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}

void others_cannot_publish_beside_an_exclusive_publisher(void) {
    const toroni_bytes payload = {"1", 1};
    char holder[80];
    toroni_bus *bus = open_as("the feed"), *other = open_as("another");
    toroni_publisher *publisher;
    toroni_exclusive *exclusive, *second;
    toroni_exclusive_topic *topic;
    const toroni_lock_owner *owner;
    toroni_stats *stats;
    size_t published = 9;
    OK(toroni_bus_publisher(other, "t", NULL, &publisher));
    OK(toroni_exclusive_open(bus, 0, &exclusive));
    OK(toroni_exclusive_open_topic(exclusive, "t", NULL, &topic));
    RETURNS(TORONI_EXCLUSIVE, toroni_publish(publisher, "1", 1));
    snprintf(holder, sizeof holder, "\"the feed\", process %d,", (int)getpid());
    CHECK(strstr(toroni_error_message(), holder) != NULL);
    RETURNS(TORONI_EXCLUSIVE, toroni_publish_within(publisher, "1", 1, TORONI_NO_WAIT, NULL));
    RETURNS(TORONI_EXCLUSIVE, toroni_publish_within(publisher, "1", 1, TORONI_FOREVER, NULL));
    RETURNS(TORONI_EXCLUSIVE, toroni_publish_batch(publisher, &payload, 1, TORONI_FOREVER, NULL));
    RETURNS(TORONI_EXCLUSIVE, toroni_publish_burst(publisher, &payload, 1, TORONI_FOREVER, &published));
    CHECK(published == 0);
    RETURNS(TORONI_EXCLUSIVE, toroni_publish_in_place(publisher, 1, TORONI_FOREVER, fill, "1", NULL));
    RETURNS(TORONI_EXCLUSIVE, toroni_exclusive_open(other, 0, &second));
    CHECK(second == NULL && strstr(toroni_error_message(), holder) != NULL);
    RETURNS(TORONI_EXCLUSIVE, toroni_exclusive_open(other, SECOND / 100, &second));
    /* It would wait for its own thread. */
    RETURNS(TORONI_EXCLUSIVE, toroni_exclusive_open(bus, TORONI_FOREVER, &second));
    OK(toroni_bus_take_stats(other, &stats));
    owner = toroni_stats_lock_owner(stats);
    CHECK(owner != NULL && owner->exclusive == 1 && owner->pid == (uint32_t)getpid());
    toroni_stats_close(stats);
    OK(toroni_exclusive_publish(exclusive, topic, "1", 1, TORONI_FOREVER, NULL));
    toroni_exclusive_close(exclusive);
    OK(toroni_publish(publisher, "1", 1));
    OK(toroni_exclusive_open(other, SECOND, &second));
    RETURNS(TORONI_FOREIGN_TOPIC, toroni_exclusive_publish(second, topic, "1", 1, TORONI_FOREVER, NULL));
    RETURNS(TORONI_FOREIGN_TOPIC,
            toroni_exclusive_publish_burst(second, topic, &payload, 1, TORONI_FOREVER, &published));
    toroni_exclusive_topic_close(topic);
    toroni_exclusive_close(second);
    toroni_publisher_close(publisher);
    toroni_bus_close(other);
    toroni_bus_close(bus);
}

struct handles {
    toroni_exclusive *exclusive;
    toroni_exclusive_topic *topic;
    toroni_publisher *publisher;
};

static int fill_and_publish(void *data, size_t length, void *context) {
    const struct handles *handles = context;
    memset(data, 'x', length);
    RETURNS(TORONI_REENTRANT,
            toroni_exclusive_publish(handles->exclusive, handles->topic, "1", 1, TORONI_FOREVER, NULL));
    RETURNS(TORONI_REENTRANT, toroni_publish(handles->publisher, "1", 1));
    /* Both stay until this message is published. */
    toroni_exclusive_topic_close(handles->topic);
    toroni_exclusive_close(handles->exclusive);
    return 0;
}

void a_function_that_writes_in_place_may_close_its_handles(void) {
    toroni_bus *bus = open_bus(NULL);
    struct handles handles;
    toroni_subscriber *subscriber;
    toroni_message message;
    OK(toroni_bus_publisher(bus, "t", NULL, &handles.publisher));
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    OK(toroni_exclusive_open(bus, 0, &handles.exclusive));
    OK(toroni_exclusive_open_topic(handles.exclusive, "t", NULL, &handles.topic));
    OK(toroni_exclusive_publish_in_place(handles.exclusive, handles.topic, 2, TORONI_FOREVER, fill_and_publish,
                                         &handles, NULL));
    OK(toroni_publish(handles.publisher, "after", 5));
    OK(toroni_try_receive(subscriber, &message));
    CHECK(says(&message, "xx"));
    OK(toroni_try_receive(subscriber, &message));
    CHECK(says(&message, "after"));
    toroni_subscriber_close(subscriber);
    toroni_publisher_close(handles.publisher);
    toroni_bus_close(bus);
}

void an_exclusive_publisher_waits_for_slow_subscribers(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_publisher_options hasty = TORONI_PUBLISHER_OPTIONS_INIT;
    static const char payload[1000];
    const toroni_bytes payloads[2] = {{payload, sizeof payload}, {payload, sizeof payload}};
    toroni_bus *bus;
    toroni_publisher *publisher;
    toroni_subscriber *subscriber;
    toroni_exclusive *exclusive;
    toroni_exclusive_topic *topic, *overwriting;
    size_t published = 9;
    int status;
    options.capacity = 1 << 16;
    options.policy.kind = TORONI_POLICY_WAIT, options.policy.limit_ns = TORONI_FOREVER;
    bus = open_bus(&options);
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    OK(toroni_exclusive_open(bus, 0, &exclusive));
    OK(toroni_exclusive_open_topic(exclusive, "t", NULL, &topic));
    hasty.policy.kind = TORONI_POLICY_OVERWRITE;
    OK(toroni_exclusive_open_topic(exclusive, "t", &hasty, &overwriting));
    do status = toroni_exclusive_publish(exclusive, topic, payload, sizeof payload, TORONI_NO_WAIT, NULL);
    while (status == TORONI_OK);
    CHECK(status == TORONI_FULL);
    RETURNS(TORONI_FULL, toroni_exclusive_publish_batch(exclusive, topic, payloads, 2, TORONI_NO_WAIT, NULL));
    RETURNS(TORONI_FULL, toroni_exclusive_publish_burst(exclusive, topic, payloads, 2, TORONI_NO_WAIT, NULL));
    RETURNS(TORONI_FULL,
            toroni_exclusive_publish_in_place(exclusive, topic, 1000, TORONI_NO_WAIT, give_up, NULL, NULL));
    RETURNS(TORONI_TIMEOUT, toroni_exclusive_publish(exclusive, topic, payload, sizeof payload, SECOND / 100, NULL));
    RETURNS(TORONI_TIMEOUT, toroni_exclusive_publish_batch(exclusive, topic, payloads, 2, SECOND / 100, NULL));
    RETURNS(TORONI_TIMEOUT,
            toroni_exclusive_publish_burst(exclusive, topic, payloads, 2, SECOND / 100, &published));
    CHECK(published == 0);
    RETURNS(TORONI_EXCLUSIVE, toroni_publish(publisher, "1", 1));
    OK(toroni_exclusive_publish(exclusive, overwriting, payload, sizeof payload, TORONI_FOREVER, NULL));
    toroni_exclusive_topic_close(overwriting);
    toroni_exclusive_topic_close(topic);
    toroni_exclusive_close(exclusive);
    toroni_subscriber_close(subscriber);
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
}

static int open_beside(void *data, size_t length, void *context) {
    toroni_exclusive *exclusive;
    (void)length;
    *(char *)data = 'x';
    RETURNS(TORONI_TIMEOUT, toroni_exclusive_open(context, 0, &exclusive));
    RETURNS(TORONI_TIMEOUT, toroni_exclusive_open(context, SECOND / 100, &exclusive));
    return 0;
}

static void *open_in_a_thread(void *other) {
    char byte;
    open_beside(&byte, 1, other);
    return NULL;
}

static int fill_beside(void *data, size_t length, void *other) {
    pthread_t thread;
    memset(data, 0, length);
    CHECK(pthread_create(&thread, NULL, open_in_a_thread, other) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}

void an_exclusive_publisher_is_refused_for_a_reason(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus = open_as("one"), *other = open_as("other"), *robust;
    toroni_publisher *publisher;
    toroni_exclusive *exclusive;
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_publish_in_place(publisher, 1, TORONI_FOREVER, fill_beside, other, NULL));
    options.directory = directory;
    options.lock = TORONI_LOCK_ROBUST;
    OK(toroni_bus_open("exclusive.robust", &options, &robust));
    RETURNS(TORONI_UNSUPPORTED, toroni_exclusive_open(robust, 0, &exclusive));
    CHECK(exclusive == NULL && strstr(toroni_error_message(), "`lease`") != NULL);
    toroni_bus_close(robust);
    toroni_publisher_close(publisher);
    toroni_bus_close(other);
    toroni_bus_close(bus);
}

void a_killed_exclusive_publisher_is_succeeded(void) {
    toroni_bus *bus = open_bus(NULL);
    toroni_subscriber *subscriber;
    toroni_publisher *publisher;
    toroni_message message;
    pid_t child;
    int status;
    OK(toroni_bus_subscribe(bus, "t", &subscriber));
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        toroni_bus *own = open_as("child");
        toroni_exclusive *exclusive;
        toroni_exclusive_topic *topic;
        OK(toroni_exclusive_open(own, TORONI_FOREVER, &exclusive));
        OK(toroni_exclusive_open_topic(exclusive, "t", NULL, &topic));
        OK(toroni_exclusive_publish(exclusive, topic, "first", 5, TORONI_FOREVER, NULL));
        for (;;) pause();
    }
    OK(toroni_receive(subscriber, &message));
    CHECK(says(&message, "first"));
    RETURNS(TORONI_EXCLUSIVE, toroni_publish(publisher, "too early", 9));
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    OK(toroni_publish(publisher, "second", 6));
    OK(toroni_receive(subscriber, &message));
    CHECK(says(&message, "second") && message.sequence == 1);
    toroni_publisher_close(publisher);
    toroni_subscriber_close(subscriber);
    toroni_bus_close(bus);
}

void an_exclusive_publisher_belongs_to_its_process(void) {
    toroni_bus *bus = open_bus(NULL);
    toroni_exclusive *exclusive, *second;
    toroni_exclusive_topic *topic, *other;
    pid_t child;
    int status;
    OK(toroni_exclusive_open(bus, 0, &exclusive));
    OK(toroni_exclusive_open_topic(exclusive, "t", NULL, &topic));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        RETURNS(TORONI_FORKED, toroni_exclusive_publish(exclusive, topic, "1", 1, TORONI_FOREVER, NULL));
        RETURNS(TORONI_FORKED, toroni_exclusive_open_topic(exclusive, "u", NULL, &other));
        RETURNS(TORONI_FORKED, toroni_exclusive_open(bus, 0, &second));
        toroni_exclusive_topic_close(topic);
        toroni_exclusive_close(exclusive);
        toroni_bus_close(bus);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(toroni_exclusive_publish(exclusive, topic, "1", 1, TORONI_FOREVER, NULL));
    toroni_exclusive_topic_close(topic);
    toroni_exclusive_close(exclusive);
    toroni_bus_close(bus);
}
