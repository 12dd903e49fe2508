// The reader of values of the conformance test in C++; bindings/conformance/README.md describes its arguments and output.

#include <toroni.hpp>

#include <iomanip>
#include <iostream>
#include <stdexcept>
#include <string>

namespace {

std::uint64_t hash(toroni::bytes bytes) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const std::byte byte : bytes) hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
    return hash;
}

void show(const toroni::retained_message &value) {
    std::cout << "value\t" << std::dec << value.sequence() << '\t' << value.topic() << '\t' << value.payload().size()
              << '\t' << std::hex << std::setw(16) << std::setfill('0') << hash(value.payload()) << std::dec << '\t';
    if (const auto from = value.origin())
        std::cout << from->source << '.' << from->series << '.' << from->stream << '.' << from->number;
    else std::cout << '-';
    std::cout << '\t' << (value.number() ? std::to_string(*value.number()) : "-") << '\n';
}

void show(const toroni::missing_value &missing) {
    std::cout << "missing\t" << missing.sequence << '\t' << missing.topic << '\t' << missing.length << '\n';
}

void get(const std::vector<std::string> &arguments) {
    if (arguments.size() != 3) throw std::invalid_argument("get BUS TOPIC PATTERN");
    toroni::open_options options;
    options.existence = TORONI_OPEN_EXISTING;
    const toroni::bus bus(arguments[0], options);
    try {
        if (const auto value = bus.retained(arguments[1])) show(*value);
        else std::cout << "none\n";
    } catch (const toroni::value_missing &missing) {
        show(missing.value());
    }
    for (const auto &read : bus.retained_matching(arguments[2])) {
        if (read) show(*read);
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
