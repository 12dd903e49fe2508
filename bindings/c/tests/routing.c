/* Routers. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include <poll.h>

static toroni_router *router;
static char heard[100];

static void note(const toroni_message *message, void *context) {
    strcat(heard, context);
    strncat(heard, message->payload, message->payload_length);
}

static void lost(const toroni_loss *loss, void *context) {
    CHECK(loss->messages > 0 && loss->bytes > 0);
    *(uint64_t *)context += loss->messages;
}

void handlers_are_called_in_order(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus;
    toroni_publisher *publisher;
    toroni_subscriber_stats seen;
    toroni_loss loss;
    struct pollfd watched = {-1, POLLIN, 0};
    char payload[1024] = {0};
    uint64_t missed = 0;
    size_t handled = 0;
    int i;
    options.capacity = 1 << 16;
    options.policy.kind = TORONI_POLICY_OVERWRITE;
    bus = open_bus(&options);
    OK(toroni_bus_router(bus, &router));
    OK(toroni_router_on(router, "t", note, "<"));
    OK(toroni_router_on(router, "*", note, ">"));
    OK(toroni_router_on(router, "other", note, "!"));
    RETURNS(TORONI_INVALID_PATTERN, toroni_router_on(router, "//", note, ""));
    RETURNS(TORONI_NO_MESSAGE, toroni_router_run_once(router, 1000));
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_router_fd(router, &watched.fd));
    OK(toroni_publish(publisher, "1", 1));
    CHECK(poll(&watched, 1, 60000) == 1);
    OK(toroni_publish(publisher, "2", 1));
    OK(toroni_router_poll(router, &handled));
    CHECK(handled == 2);
    OK(toroni_publish(publisher, "3", 1));
    OK(toroni_router_run_once(router, TORONI_FOREVER));
    CHECK(strcmp(heard, "<1>1<2>2<3>3") == 0);

    heard[0] = 0;
    for (i = 0; i < 200; i++) OK(toroni_publish(publisher, payload, sizeof payload));
    handled = 99;
    RETURNS(TORONI_LAPPED, toroni_router_poll(router, &handled));
    CHECK(handled == 0);
    OK(toroni_router_last_loss(router, &loss));
    CHECK(loss.messages > 100);
    OK(toroni_router_on_lapped(router, lost, &missed));
    for (i = 0; i < 200; i++) OK(toroni_publish(publisher, payload, sizeof payload));
    heard[0] = 0;
    do {
        OK(toroni_router_poll(router, &handled));
        heard[0] = 0;
    } while (handled > 0);
    CHECK(toroni_router_lag_bytes(router) == 0 && toroni_router_position(router) > 400 * sizeof payload);
    CHECK(toroni_router_slot(router) == 0);
    OK(toroni_publish(publisher, "4", 1));
    CHECK(toroni_router_lag_bytes(router) == 16);
    OK(toroni_router_poll(router, NULL));
    OK(toroni_router_get_stats(router, &seen));
    CHECK(missed > 0 && seen.lost_messages == missed + loss.messages);
    CHECK(seen.received + seen.lost_messages == 404);
    toroni_publisher_close(publisher);
    toroni_router_close(router);
    toroni_bus_close(bus);
}

static void enter_again(const toroni_message *message, void *context) {
    toroni_subscriber_stats stats;
    size_t handled;
    int fd;
    (void)message;
    RETURNS(TORONI_REENTRANT, toroni_router_poll(router, &handled));
    RETURNS(TORONI_REENTRANT, toroni_router_run_once(router, 0));
    RETURNS(TORONI_REENTRANT, toroni_router_run(router));
    RETURNS(TORONI_REENTRANT, toroni_router_on(router, "t", enter_again, NULL));
    RETURNS(TORONI_REENTRANT, toroni_router_on_lapped(router, lost, NULL));
    RETURNS(TORONI_REENTRANT, toroni_router_fd(router, &fd));
    RETURNS(TORONI_REENTRANT, toroni_router_get_stats(router, &stats));
    CHECK(toroni_router_position(router) == 0 && toroni_router_lag_bytes(router) == 0);
    CHECK(toroni_router_slot(router) == TORONI_NO_SLOT);
    toroni_router_close(router);
    *(int *)context += 1;
}

void a_router_is_not_entered_twice(void) {
    toroni_bus *bus = open_bus(NULL);
    toroni_publisher *publisher;
    int entered = 0;
    OK(toroni_bus_router(bus, &router));
    OK(toroni_router_on(router, "t", enter_again, &entered));
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_publish(publisher, "", 0));
    OK(toroni_publish(publisher, "", 0));
    OK(toroni_router_poll(router, NULL));
    CHECK(entered == 2);
    toroni_publisher_close(publisher);
    toroni_router_close(router);
    toroni_bus_close(bus);
}

static toroni_publisher *self;

/* Publishes another message, so that one is always available. */
static void publish_again(const toroni_message *message, void *context) {
    (void)message;
    if (++*(int *)context == 10) toroni_router_interrupt(router);
    if (*(int *)context < 1000) OK(toroni_publish(self, "", 0));
}

void a_router_runs_until_interrupted(void) {
    toroni_bus *bus = open_bus(NULL);
    int handled = 0;
    OK(toroni_bus_router(bus, &router));
    OK(toroni_router_on(router, "t", publish_again, &handled));
    OK(toroni_bus_publisher(bus, "t", NULL, &self));
    OK(toroni_publish(self, "", 0));
    RETURNS(TORONI_INTERRUPTED, toroni_router_run(router));
    CHECK(handled == 10);
    toroni_publisher_close(self);
    toroni_router_close(router);
    toroni_bus_close(bus);
}
