/* A system log over a bus: what syslog(3) and its daemon do, without a socket between them.
 *
 *     logger log FACILITY PRIORITY TEXT...   publishes a line, as logger(1) does, on the topic
 *                                            log/FACILITY/PRIORITY, with its author and the time
 *     logger daemon FILE [PRIORITY]          appends lines of PRIORITY (default: info) and more urgent ones to
 *                                            FILE, and the numbers of lost messages, until SIGTERM or SIGINT; on
 *                                            SIGHUP it opens the file again, for logrotate
 *
 * The bus is called `log`. A process that logs never waits. If the daemon is too slow, it loses lines and writes how
 * many, instead of stopping the programs of the machine. */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <toroni.h>
#include <unistd.h>

static const char *const priorities[] = {"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"};
#define PRIORITIES (sizeof priorities / sizeof *priorities)

static size_t priority_of(const char *name) {
    size_t i;
    for (i = 0; i < PRIORITIES; i++)
        if (strcmp(name, priorities[i]) == 0) return i;
    fprintf(stderr, "logger: %s is not a priority: use emerg, alert, crit, err, warning, notice, info or debug\n", name);
    exit(2);
}

static void check(int status) {
    if (status == TORONI_OK) return;
    fprintf(stderr, "logger: %s\n", toroni_error_message());
    exit(1);
}

static toroni_bus *open_log(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus;
    options.policy.kind = TORONI_POLICY_OVERWRITE;
    options.flags = TORONI_FLAG_TIMESTAMPS;
    check(toroni_bus_open("log", &options, &bus));
    return bus;
}

static int log_line(int count, char **words) {
    toroni_bus *bus = open_log();
    toroni_publisher *publisher;
    char topic[200], line[4096];
    size_t used;
    int i;
    snprintf(topic, sizeof topic, "log/%s/%s", words[0], priorities[priority_of(words[1])]);
    used = (size_t)snprintf(line, sizeof line, "%s[%ld]:", getenv("USER") ? getenv("USER") : "?", (long)getppid());
    for (i = 2; i < count && used < sizeof line; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, " %s", words[i]);
    if (used >= sizeof line) used = sizeof line - 1;
    check(toroni_bus_publisher(bus, topic, NULL, &publisher));
    check(toroni_publish(publisher, line, used));
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
    return 0;
}

/* Signal handlers set these for the daemon. */
static toroni_router *router;
static volatile sig_atomic_t ended, reopen;

static void on_signal(int number) {
    if (number == SIGHUP) reopen = 1;
    else ended = 1;
    toroni_router_interrupt(router);
}

struct sink {
    const char *path;
    FILE *file;
};

static void stamp(FILE *file, time_t seconds) {
    struct tm local;
    char text[40];
    localtime_r(&seconds, &local);
    strftime(text, sizeof text, "%b %d %H:%M:%S", &local);
    fprintf(file, "%s ", text);
}

static void write_line(const toroni_message *message, void *context) {
    struct sink *sink = context;
    /* The topic without "log/" is facility/priority. */
    stamp(sink->file, (time_t)(message->timestamp_ns / 1000000000));
    fprintf(sink->file, "%.*s %.*s\n", (int)message->topic_length - 4, message->topic + 4,
            (int)message->payload_length, (const char *)message->payload);
}

static void write_loss(const toroni_loss *loss, void *context) {
    struct sink *sink = context;
    stamp(sink->file, time(NULL));
    fprintf(sink->file, "logger: %llu messages were lost\n", (unsigned long long)loss->messages);
}

static void open_file(struct sink *sink) {
    if (sink->file != NULL) fclose(sink->file);
    sink->file = fopen(sink->path, "a");
    if (sink->file != NULL) return;
    fprintf(stderr, "logger: cannot open %s: %s\n", sink->path, strerror(errno));
    exit(1);
}

static int serve(const char *path, const char *least) {
    toroni_bus *bus = open_log();
    struct sink sink = {path, NULL};
    struct sigaction action;
    size_t i;
    open_file(&sink);
    check(toroni_bus_router(bus, &router));
    for (i = 0; i <= priority_of(least); i++) {
        char pattern[40];
        snprintf(pattern, sizeof pattern, "log/*/%s", priorities[i]);
        check(toroni_router_on(router, pattern, write_line, &sink));
    }
    check(toroni_router_on_lapped(router, write_loss, &sink));
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    fputs("logging\n", stderr);
    while (!ended) {
        /* Lines arrive in bursts: flush after the last one that is available. */
        int status = toroni_router_run_once(router, TORONI_FOREVER);
        if (status == TORONI_OK) status = toroni_router_poll(router, NULL);
        fflush(sink.file);
        if (reopen) {
            reopen = 0;
            open_file(&sink);
        }
        if (status != TORONI_INTERRUPTED) check(status);
    }
    check(toroni_router_poll(router, NULL));
    fclose(sink.file);
    /* A second signal must not interrupt a router that is closed. */
    action.sa_handler = SIG_IGN;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    toroni_router_close(router);
    toroni_bus_close(bus);
    return 0;
}

int main(int count, char **arguments) {
    if (count >= 5 && strcmp(arguments[1], "log") == 0) return log_line(count - 2, arguments + 2);
    if ((count == 3 || count == 4) && strcmp(arguments[1], "daemon") == 0)
        return serve(arguments[2], count == 4 ? arguments[3] : "info");
    fputs("logger log FACILITY PRIORITY TEXT...\nlogger daemon FILE [PRIORITY]\n", stderr);
    return 2;
}
