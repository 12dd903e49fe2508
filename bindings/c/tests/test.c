/* Runs all tests, or those whose names contain the first argument. Each has its own bus. */
#define _XOPEN_SOURCE 700

#include "test.h"

#include <dirent.h>
#include <ftw.h>
#include <unistd.h>

void null_is_an_error_everywhere(void);
void a_call_that_fails_clears_its_result(void);
void invalid_texts_and_values_are_errors(void);
void programs_of_other_releases_are_understood(void);
void each_error_has_its_status_and_says_what_to_do(void);
void errors_belong_to_their_thread(void);
void settings_arrive(void);
void messages_arrive_in_every_way(void);
void a_message_that_is_given_up_is_not_published(void);
void waits_for_slow_subscribers_have_limits(void);
void a_thread_that_publishes_to_itself_gets_an_error(void);
void an_exclusive_publisher_publishes_in_every_way(void);
void others_cannot_publish_beside_an_exclusive_publisher(void);
void a_function_that_writes_in_place_may_close_its_handles(void);
void an_exclusive_publisher_waits_for_slow_subscribers(void);
void an_exclusive_publisher_is_refused_for_a_reason(void);
void a_killed_exclusive_publisher_is_succeeded(void);
void an_exclusive_publisher_belongs_to_its_process(void);
void an_inlet_publishes_what_comes_from_elsewhere(void);
void each_message_from_elsewhere_arrives_once(void);
void losses_from_elsewhere_arrive_at_their_place(void);
void one_inlet_at_a_time_brings_a_series(void);
void invalid_messages_from_elsewhere_are_refused(void);
void an_inlet_waits_for_slow_subscribers(void);
void an_inlet_can_wait_less_than_the_bus_says(void);
void threads_share_an_inlet(void);
void a_killed_inlet_is_succeeded(void);
void publishers_learn_the_sequences_of_their_messages(void);
void a_call_for_a_sequence_has_a_time_limit(void);
void messages_are_held_until_they_are_released(void);
void a_hold_ends_when_the_policy_ends_it(void);
void values_come_before_the_stream(void);
void values_are_read_without_a_subscriber(void);
void a_value_without_room_is_missing(void);
void an_exclusive_publisher_retains_topics(void);
void what_cannot_be_retained_is_refused(void);
void losses_are_exact(void);
void messages_in_place_are_validated(void);
void messages_are_passed_on_in_place(void);
void blocked_calls_end_when_interrupted(void);
void a_descriptor_is_readable_when_there_are_messages(void);
void starts_and_positions(void);
void statistics_list_participants(void);
void statistics_name_the_lock_owner(void);
void multicast_groups_are_chosen_and_reported(void);
void a_child_of_fork_gets_an_error(void);
void old_messages_are_passed_over(void);
void handlers_are_called_in_order(void);
void a_router_is_not_entered_twice(void);
void a_router_runs_until_interrupted(void);
void a_command_is_awaited_until_its_event_comes(void);
void lost_commands_and_events_are_outcomes(void);
void threads_send_commands(void);
void wrong_calls_of_commands_are_errors(void);
void patterns_match_topics(void);
void topics_are_listed(void);
void groups_are_looked_up_by_name(void);
void a_bus_on_a_disk_reports_what_it_kept(void);
void buses_are_listed_and_cleaned(void);
void leftovers_of_dead_processes_are_cleaned(void);

#define TEST(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    TEST(null_is_an_error_everywhere),
    TEST(a_call_that_fails_clears_its_result),
    TEST(invalid_texts_and_values_are_errors),
    TEST(programs_of_other_releases_are_understood),
    TEST(each_error_has_its_status_and_says_what_to_do),
    TEST(errors_belong_to_their_thread),
    TEST(settings_arrive),
    TEST(messages_arrive_in_every_way),
    TEST(a_message_that_is_given_up_is_not_published),
    TEST(waits_for_slow_subscribers_have_limits),
    TEST(a_thread_that_publishes_to_itself_gets_an_error),
    TEST(an_exclusive_publisher_publishes_in_every_way),
    TEST(others_cannot_publish_beside_an_exclusive_publisher),
    TEST(a_function_that_writes_in_place_may_close_its_handles),
    TEST(an_exclusive_publisher_waits_for_slow_subscribers),
    TEST(an_exclusive_publisher_is_refused_for_a_reason),
    TEST(a_killed_exclusive_publisher_is_succeeded),
    TEST(an_exclusive_publisher_belongs_to_its_process),
    TEST(an_inlet_publishes_what_comes_from_elsewhere),
    TEST(each_message_from_elsewhere_arrives_once),
    TEST(losses_from_elsewhere_arrive_at_their_place),
    TEST(one_inlet_at_a_time_brings_a_series),
    TEST(invalid_messages_from_elsewhere_are_refused),
    TEST(an_inlet_waits_for_slow_subscribers),
    TEST(an_inlet_can_wait_less_than_the_bus_says),
    TEST(threads_share_an_inlet),
    TEST(a_killed_inlet_is_succeeded),
    TEST(publishers_learn_the_sequences_of_their_messages),
    TEST(a_call_for_a_sequence_has_a_time_limit),
    TEST(messages_are_held_until_they_are_released),
    TEST(a_hold_ends_when_the_policy_ends_it),
    TEST(values_come_before_the_stream),
    TEST(values_are_read_without_a_subscriber),
    TEST(a_value_without_room_is_missing),
    TEST(an_exclusive_publisher_retains_topics),
    TEST(what_cannot_be_retained_is_refused),
    TEST(losses_are_exact),
    TEST(messages_in_place_are_validated),
    TEST(messages_are_passed_on_in_place),
    TEST(blocked_calls_end_when_interrupted),
    TEST(a_descriptor_is_readable_when_there_are_messages),
    TEST(starts_and_positions),
    TEST(statistics_list_participants),
    TEST(statistics_name_the_lock_owner),
    TEST(multicast_groups_are_chosen_and_reported),
    TEST(a_child_of_fork_gets_an_error),
    TEST(old_messages_are_passed_over),
    TEST(handlers_are_called_in_order),
    TEST(a_router_is_not_entered_twice),
    TEST(a_router_runs_until_interrupted),
    TEST(a_command_is_awaited_until_its_event_comes),
    TEST(lost_commands_and_events_are_outcomes),
    TEST(threads_send_commands),
    TEST(wrong_calls_of_commands_are_errors),
    TEST(patterns_match_topics),
    TEST(topics_are_listed),
    TEST(groups_are_looked_up_by_name),
    TEST(a_bus_on_a_disk_reports_what_it_kept),
    TEST(buses_are_listed_and_cleaned),
    TEST(leftovers_of_dead_processes_are_cleaned),
};

const char *directory;
static const char *running;
static char path[] = "/dev/shm/toroni-test-c-XXXXXX";
static char disk_path[] = "/var/tmp/toroni-test-c-XXXXXX";
static int has_disk_path;
static pid_t owner;

toroni_bus *open_bus(toroni_open_options *options) {
    toroni_open_options defaults = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus = NULL;
    char name[64];
    if (options == NULL) options = &defaults;
    options->directory = directory;
    snprintf(name, sizeof name, "%.60s", running);
    OK(toroni_bus_open(name, options, &bus));
    CHECK(bus != NULL);
    return bus;
}

const char *disk_directory(void) {
    if (!has_disk_path) CHECK(mkdtemp(disk_path) != NULL);
    has_disk_path = 1;
    return disk_path;
}

int says(const toroni_message *message, const char *text) {
    return message->payload_length == strlen(text) && memcmp(message->payload, text, strlen(text)) == 0;
}

static int removed(const char *name, const struct stat *status, int kind, struct FTW *walk) {
    (void)status, (void)kind, (void)walk;
    return remove(name);
}

static void clean_up(void) {
    /* A child of fork must not remove the directories. */
    if (getpid() != owner) return;
    nftw(path, removed, 8, FTW_DEPTH | FTW_PHYS);
    if (has_disk_path) nftw(disk_path, removed, 8, FTW_DEPTH | FTW_PHYS);
}

int main(int count, char **arguments) {
    size_t i, ran = 0;
    CHECK(mkdtemp(path) != NULL);
    owner = getpid();
    directory = path;
    atexit(clean_up);
    for (i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (count > 1 && strstr(tests[i].name, arguments[1]) == NULL) continue;
        running = tests[i].name;
        printf("%s ...", running);
        fflush(stdout);
        tests[i].run();
        puts(" ok");
        ran++;
    }
    printf("test result: ok. %zu passed; 0 failed\n", ran);
    return 0;
}
