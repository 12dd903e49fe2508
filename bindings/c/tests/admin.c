/* Topics, buses on a disk, and buses as files. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void patterns_match_topics(void) {
    int yes = -1;
    OK(toroni_matches("plant/*/temperature", "plant/boiler/temperature", &yes));
    CHECK(yes == 1);
    OK(toroni_matches("plant/*", "plant/boiler/temperature", &yes));
    CHECK(yes == 0);
    OK(toroni_matches("plant/**/temperature", "plant", &yes));
    CHECK(yes == 0);
    OK(toroni_matches_descendants("plant/**/temperature", "plant", &yes));
    CHECK(yes == 1);
    OK(toroni_matches_descendants("plant", "plant/boiler", &yes));
    CHECK(yes == 0);
    yes = 7;
    RETURNS(TORONI_INVALID_PATTERN, toroni_matches("a*", "a", &yes));
    RETURNS(TORONI_INVALID_TOPIC, toroni_matches("a", "a//b", &yes));
    RETURNS(TORONI_INVALID_TOPIC, toroni_matches_descendants("a", "*", &yes));
    CHECK(yes == 0);
}

void topics_are_listed(void) {
    toroni_bus *bus = open_bus(NULL);
    toroni_publisher *pump, *valve;
    toroni_topics *topics;
    OK(toroni_bus_take_topics(bus, &topics));
    CHECK(toroni_topics_count(topics) == 0 && toroni_topics_at(topics, 0) == NULL);
    toroni_topics_close(topics);
    OK(toroni_bus_publisher(bus, "plant/valve", NULL, &valve));
    OK(toroni_bus_publisher(bus, "plant/pump", NULL, &pump));
    OK(toroni_publish(valve, "12345", 5));
    OK(toroni_publish(pump, "on", 2));
    OK(toroni_publish(valve, "", 0));
    OK(toroni_bus_take_topics(bus, &topics));
    /* A list outlives its bus. */
    toroni_publisher_close(pump);
    toroni_publisher_close(valve);
    toroni_bus_close(bus);
    CHECK(toroni_topics_count(topics) == 2);
    CHECK(strcmp(toroni_topics_at(topics, 0)->name, "plant/pump") == 0);
    CHECK(toroni_topics_at(topics, 0)->messages == 1 && toroni_topics_at(topics, 0)->bytes == 2);
    CHECK(strcmp(toroni_topics_at(topics, 1)->name, "plant/valve") == 0);
    CHECK(toroni_topics_at(topics, 1)->messages == 2 && toroni_topics_at(topics, 1)->bytes == 5);
    CHECK(toroni_topics_at(topics, 2) == NULL && toroni_topics_at(topics, SIZE_MAX) == NULL);
    toroni_topics_close(topics);
}

/* This must also work in a static program, whose C library cannot load plugins for names. */
void groups_are_looked_up_by_name(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus;
    options.writers_group = "root";
    bus = open_bus(&options);
    toroni_bus_close(bus);
    options.directory = directory;
    options.writers_group = "no such group";
    RETURNS(TORONI_INVALID_SETTING, toroni_bus_open("another", &options, &bus));
}

/* Writes another boot id to a bus, as if the machine had booted since then. */
static void reboot(const char *ring) {
    unsigned char header[4096], id[16];
    char text[64];
    size_t digits = 0, at;
    ssize_t length;
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY);
    CHECK(file >= 0 && (length = read(file, text, sizeof text)) > 32 && close(file) == 0);
    memset(id, 0, sizeof id);
    for (at = 0; at < (size_t)length; at++) {
        if (!isxdigit((unsigned char)text[at])) continue;
        id[digits / 2] = (unsigned char)(id[digits / 2] << 4 | (text[at] <= '9' ? text[at] - '0' : text[at] - 'a' + 10));
        digits++;
    }
    CHECK(digits == 2 * sizeof id);
    file = open(ring, O_RDWR);
    CHECK(file >= 0 && pread(file, header, sizeof header, 0) == sizeof header);
    for (at = 0; at + sizeof id <= sizeof header && memcmp(header + at, id, sizeof id) != 0; at++) continue;
    CHECK(at + sizeof id <= sizeof header);
    memset(id, 7, sizeof id);
    CHECK(pwrite(file, id, sizeof id, (off_t)at) == sizeof id && close(file) == 0);
}

void a_bus_on_a_disk_reports_what_it_kept(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus, *second;
    toroni_publisher *publisher;
    toroni_stats *stats;
    toroni_reopened reopened = {7, 7, 7};
    char ring[256];
    pid_t child;
    int status, on_disk;
    options.directory = disk_directory();
    snprintf(ring, sizeof ring, "%s/b/ring", options.directory);
    OK(toroni_bus_open("b", &options, &bus));
    OK(toroni_bus_reopened(bus, &reopened));
    CHECK(reopened.outcome == TORONI_REOPENED_NOT && reopened.messages == 0);
    OK(toroni_bus_take_stats(bus, &stats));
    on_disk = toroni_stats_bus(stats)->on_disk;
    toroni_stats_close(stats);
    OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
    OK(toroni_publish(publisher, "1", 1));
    OK(toroni_publish(publisher, "2", 1));
    toroni_publisher_close(publisher);
    toroni_bus_close(bus);
    if (!on_disk) {
        printf(" (skipped: /var/tmp is in memory)");
        return;
    }

    reboot(ring);
    OK(toroni_bus_open("b", &options, &bus));
    OK(toroni_bus_reopened(bus, &reopened));
    CHECK(reopened.outcome == TORONI_REOPENED_KEPT && reopened.messages == 2);
    OK(toroni_bus_open("b", &options, &second));
    OK(toroni_bus_reopened(second, &reopened));
    CHECK(reopened.outcome == TORONI_REOPENED_NOT && reopened.messages == 0);
    toroni_bus_close(second);
    toroni_bus_close(bus);

    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        OK(toroni_bus_open("b", &options, &bus));
        OK(toroni_bus_publisher(bus, "t", NULL, &publisher));
        OK(toroni_publish(publisher, "3", 1));
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    reboot(ring);
    OK(toroni_bus_open("b", &options, &bus));
    OK(toroni_bus_reopened(bus, &reopened));
    CHECK(reopened.outcome == TORONI_REOPENED_EMPTIED && reopened.messages == 0);
    toroni_bus_close(bus);
}

/* Cleans up, writes the report to `report`, and returns the number of actions. */
static size_t cleaned(const char *buses_directory, const char *name, uint32_t flags, toroni_clean_report **report) {
    OK(toroni_clean(buses_directory, name, flags, report));
    return toroni_clean_report_action_count(*report);
}

static size_t buses(const char *buses_directory, toroni_bus_list **list) {
    OK(toroni_list_buses(buses_directory, list));
    return toroni_bus_list_count(*list);
}

void buses_are_listed_and_cleaned(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus, *kept;
    toroni_bus_list *list;
    toroni_clean_report *report;
    const toroni_bus_entry *entry;
    const toroni_clean_action *action;
    char buses_directory[128], path[256], ring[300];
    int file;
    CHECK(setenv("TORONI_DIR", "/some/where", 1) == 0);
    CHECK(strcmp(toroni_default_directory(), "/some/where") == 0);
    CHECK(unsetenv("TORONI_DIR") == 0);
    CHECK(strcmp(toroni_default_directory(), "/dev/shm/toroni") == 0);
    CHECK(setenv("TORONI_DIR", "", 1) == 0);
    CHECK(strcmp(toroni_default_directory(), "/dev/shm/toroni") == 0);
    /* An empty path is a mistake of the caller: the default directory holds the buses of others. */
    CHECK(toroni_list_buses("", &list) == TORONI_INVALID_SETTING);
    CHECK(strstr(toroni_error_message(), "leave it out") != NULL);
    CHECK(toroni_clean("", NULL, 0, &report) == TORONI_INVALID_SETTING);
    options.directory = "";
    CHECK(toroni_bus_open("test", &options, &bus) == TORONI_INVALID_SETTING);
    options.directory = NULL;
    CHECK(unsetenv("TORONI_DIR") == 0);
    snprintf(buses_directory, sizeof buses_directory, "%s/buses", directory);
    CHECK(buses(buses_directory, &list) == 0);
    CHECK(toroni_bus_list_at(list, 0) == NULL);
    toroni_bus_list_close(list);
    CHECK(cleaned(buses_directory, NULL, 0, &report) == 0);
    toroni_clean_report_close(report);
    RETURNS(TORONI_NOT_FOUND, toroni_clean(buses_directory, "used", 0, &report));

    options.directory = buses_directory;
    OK(toroni_bus_open("used", &options, &bus));
    options.flags = TORONI_FLAG_PERSISTENT;
    options.capacity = 1 << 16;
    OK(toroni_bus_open("kept", &options, &kept));
    toroni_bus_close(kept);
    options.flags = 0;
    OK(toroni_bus_open("broken", &options, &kept));
    toroni_bus_close(kept);
    snprintf(ring, sizeof ring, "%s/broken/ring", buses_directory);
    file = open(ring, O_WRONLY);
    CHECK(file >= 0 && pwrite(file, "?", 1, 64) == 1 && close(file) == 0);
    snprintf(path, sizeof path, "%s/.gone.0123456789abcdef", buses_directory);
    CHECK(mkdir(path, 0700) == 0);

    CHECK(buses(buses_directory, &list) == 3);
    entry = toroni_bus_list_at(list, 0);
    CHECK(strcmp(entry->name, "broken") == 0 && entry->problem != NULL && entry->capacity == 0);
    entry = toroni_bus_list_at(list, 1);
    CHECK(strcmp(entry->name, "kept") == 0 && entry->persistent && entry->in_use == 0);
    CHECK(entry->problem == NULL && entry->capacity == 1 << 16);
    entry = toroni_bus_list_at(list, 2);
    CHECK(strcmp(entry->name, "used") == 0 && !entry->persistent && entry->in_use == 1);
    CHECK(strcmp(entry->path, toroni_bus_path(bus)) == 0 && entry->capacity == 4 << 20);
    CHECK(toroni_bus_list_at(list, 3) == NULL);
    toroni_bus_list_close(list);

    /* The leftover is removed, the damaged bus only by its name. What the report says has been done. */
    CHECK(cleaned(buses_directory, NULL, TORONI_CLEAN_DRY_RUN, &report) == 1);
    toroni_clean_report_close(report);
    CHECK(cleaned(buses_directory, NULL, 0, &report) == 1);
    action = toroni_clean_report_action(report, 0);
    CHECK(action->kind == TORONI_CLEANED_LEFTOVER && strcmp(action->path, path) == 0);
    CHECK(action->bus == NULL && action->file == NULL && strstr(action->text, path) != NULL);
    CHECK(toroni_clean_report_action(report, 1) == NULL);
    CHECK(toroni_clean_report_skip_count(report) == 1 && toroni_clean_report_skip(report, 1) == NULL);
    CHECK(strstr(toroni_clean_report_skip(report, 0)->path, "broken") != NULL);
    CHECK(*toroni_clean_report_skip(report, 0)->why != 0);
    toroni_clean_report_close(report);
    CHECK(cleaned(buses_directory, "broken", 0, &report) == 1);
    toroni_clean_report_close(report);

    /* A persistent bus is removed only with the flag, and a bus in use never. */
    CHECK(cleaned(buses_directory, "kept", 0, &report) == 0 && toroni_clean_report_skip_count(report) == 1);
    toroni_clean_report_close(report);
    CHECK(cleaned(buses_directory, "kept", TORONI_CLEAN_PERSISTENT | TORONI_CLEAN_DRY_RUN, &report) == 1);
    toroni_clean_report_close(report);
    CHECK(buses(buses_directory, &list) == 2);
    toroni_bus_list_close(list);
    CHECK(cleaned(buses_directory, "kept", TORONI_CLEAN_PERSISTENT, &report) == 1);
    CHECK(toroni_clean_report_action(report, 0)->kind == TORONI_CLEANED_BUS);
    toroni_clean_report_close(report);
    CHECK(cleaned(buses_directory, "used", TORONI_CLEAN_PERSISTENT, &report) == 0);
    CHECK(toroni_clean_report_skip_count(report) == 1);
    toroni_clean_report_close(report);
    toroni_bus_close(bus);
    CHECK(cleaned(buses_directory, NULL, 0, &report) == 1);
    toroni_clean_report_close(report);
    CHECK(buses(buses_directory, &list) == 0);
    toroni_bus_list_close(list);

    RETURNS(TORONI_NOT_FOUND, toroni_clean(buses_directory, "used", 0, &report));
    CHECK(report == NULL);
    RETURNS(TORONI_INVALID_NAME, toroni_clean(buses_directory, "../buses", 0, &report));
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_clean(buses_directory, NULL, TORONI_CLEAN_PERSISTENT, &report));
    RETURNS(TORONI_INVALID_ARGUMENT, toroni_clean(buses_directory, NULL, 4, &report));
    RETURNS(TORONI_BAD_DIRECTORY, toroni_list_buses("/proc/self/exe", &list));
    CHECK(list == NULL);
}

void leftovers_of_dead_processes_are_cleaned(void) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus, *childs;
    toroni_publisher *publisher;
    toroni_subscriber *subscriber;
    toroni_clean_report *report;
    toroni_stats *stats;
    pid_t child;
    size_t i, slots = 0, sockets = 0;
    int status, fd;
    options.notify = TORONI_NOTIFY_DATAGRAM;
    bus = open_bus(&options);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        childs = open_bus(&options);
        OK(toroni_bus_publisher(childs, "t", NULL, &publisher));
        OK(toroni_bus_subscribe(childs, "t", &subscriber));
        OK(toroni_subscriber_fd(subscriber, &fd));
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(cleaned(directory, toroni_bus_name(bus), TORONI_CLEAN_DRY_RUN, &report) == 3);
    toroni_clean_report_close(report);
    CHECK(cleaned(directory, toroni_bus_name(bus), 0, &report) == 3);
    for (i = 0; i < 3; i++) {
        const toroni_clean_action *action = toroni_clean_report_action(report, i);
        if (action->kind == TORONI_CLEANED_SLOT) {
            CHECK(action->slot == 0 && strcmp(action->bus, toroni_bus_name(bus)) == 0 && action->path == NULL);
            CHECK(strcmp(action->file, slots == 0 ? "publishers" : "readers") == 0);
            slots++;
        } else {
            CHECK(action->kind == TORONI_CLEANED_SOCKET && strstr(action->path, "/sockets/") != NULL);
            sockets++;
        }
    }
    CHECK(slots == 2 && sockets == 1);
    toroni_clean_report_close(report);
    CHECK(cleaned(directory, toroni_bus_name(bus), 0, &report) == 0);
    toroni_clean_report_close(report);
    OK(toroni_bus_take_stats(bus, &stats));
    CHECK(toroni_stats_publisher_count(stats) == 0 && toroni_stats_subscriber_count(stats) == 0);
    toroni_stats_close(stats);
    toroni_bus_close(bus);
}
