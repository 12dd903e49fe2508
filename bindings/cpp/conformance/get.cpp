// The reader of values of the conformance test in C++; bindings/conformance/README.md describes its arguments and output.

#include "common.hpp"

#include <stdexcept>

namespace {

void show_value(const toroni::retained_message &value) { show("value", value, hash(value.payload())); }

void get(const std::vector<std::string> &arguments) {
    if (arguments.size() != 3) throw std::invalid_argument("get BUS TOPIC PATTERN");
    toroni::open_options options;
    options.existence = TORONI_OPEN_EXISTING;
    const toroni::bus bus(arguments[0], options);
    try {
        if (const auto value = bus.retained(arguments[1])) show_value(*value);
        else std::cout << "none\n";
    } catch (const toroni::value_missing &missing) {
        show(missing.value());
    }
    for (const auto &read : bus.retained_matching(arguments[2])) {
        if (read) show_value(*read);
        else if (read.error().missing) show(*read.error().missing);
        else read.error().raise();
    }
    const auto seen = bus.stats().bus();
    std::cout << "retained\t" << seen.retained_topics << '\t' << seen.max_retained_topics << '\t'
              << seen.missing_values << '\t' << seen.retained_used_bytes << '\t' << seen.retained_bytes << '\n';
    const char *const states[] = {"-", "none", "kept", "missing"};
    for (const auto &topic : bus.topics()) {
        std::cout << "topic\t" << topic.name << '\t' << states[topic.value] << '\t';
        if (topic.value >= TORONI_TOPIC_KEPT) std::cout << topic.value_sequence << '\t' << topic.value_bytes << '\n';
        else std::cout << "-\t-\n";
    }
}

} // namespace

int main(int count, char **arguments) {
    try {
        get({arguments + 1, arguments + count});
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
