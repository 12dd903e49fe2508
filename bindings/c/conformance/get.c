/* The reader of values of the conformance test in C; bindings/conformance/README.md describes its arguments and output. */
#include "common.h"

static void show(const toroni_value *value) {
    printf("value\t%llu\t%s\t%llu\t%016llx\t", (unsigned long long)value->sequence, value->topic,
           (unsigned long long)value->payload_length, hash(value->payload, value->payload_length));
    show_from(value->flags, &value->origin, value->number);
}

static void show_one(const toroni_bus *bus, const char *topic) {
    toroni_values *values;
    const int status = toroni_bus_retained(bus, topic, &values);
    if (status == TORONI_NO_MESSAGE) {
        puts("none");
        return;
    }
    if (status == TORONI_VALUE_MISSING) {
        toroni_missing missing;
        check(toroni_last_missing(&missing));
        show_missing(missing.topic, missing.sequence, missing.length);
        return;
    }
    check(status);
    show(toroni_values_at(values, 0));
    toroni_values_close(values);
}

static void show_matching(const toroni_bus *bus, const char *pattern) {
    toroni_values *values;
    size_t i;
    check(toroni_bus_retained_matching(bus, pattern, &values));
    for (i = 0; i < toroni_values_count(values); i++) {
        const toroni_value *value = toroni_values_at(values, i);
        if (value->status == TORONI_OK) {
            show(value);
        } else if (value->status == TORONI_VALUE_MISSING) {
            show_missing(value->topic, value->sequence, value->missing_length);
        } else {
            fprintf(stderr, "%s\n", value->problem);
            exit(1);
        }
    }
    toroni_values_close(values);
}

static void show_stats(const toroni_bus *bus) {
    toroni_stats *stats;
    const toroni_bus_stats *seen;
    check(toroni_bus_take_stats(bus, &stats));
    seen = toroni_stats_bus(stats);
    printf("retained\t%lu\t%lu\t%lu\t%llu\t%llu\n", (unsigned long)seen->retained_topics,
           (unsigned long)seen->max_retained_topics, (unsigned long)seen->missing_values,
           (unsigned long long)seen->retained_used_bytes, (unsigned long long)seen->retained_bytes);
    toroni_stats_close(stats);
}

static void show_topics(const toroni_bus *bus) {
    static const char *const states[] = {"-", "none", "kept", "missing"};
    toroni_topics *topics;
    size_t i;
    check(toroni_bus_take_topics(bus, &topics));
    for (i = 0; i < toroni_topics_count(topics); i++) {
        const toroni_topic_info *topic = toroni_topics_at(topics, i);
        printf("topic\t%s\t%s\t", topic->name, states[topic->value]);
        if (topic->value >= TORONI_TOPIC_KEPT)
            printf("%llu\t%llu\n", (unsigned long long)topic->value_sequence, (unsigned long long)topic->value_bytes);
        else puts("-\t-");
    }
    toroni_topics_close(topics);
}

int main(int count, char **arguments) {
    toroni_open_options options = TORONI_OPEN_OPTIONS_INIT;
    toroni_bus *bus;

    if (count != 4) return fputs("get BUS TOPIC PATTERN\n", stderr), 1;
    options.existence = TORONI_OPEN_EXISTING;
    check(toroni_bus_open(arguments[1], &options, &bus));
    show_one(bus, arguments[2]);
    show_matching(bus, arguments[3]);
    show_stats(bus);
    show_topics(bus);
    toroni_bus_close(bus);
    return 0;
}
