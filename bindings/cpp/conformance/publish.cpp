// The publisher of the conformance test in C++; bindings/conformance/README.md describes its arguments and output.

#include <toroni.hpp>

#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <thread>

namespace {

struct message_writer {
    std::uint64_t id, size;

    std::size_t length(std::uint64_t number) const { return 16 + number * 37 % (size - 15); }

    template <typename Bytes> void write(Bytes &&bytes, std::uint64_t number) const {
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            const std::uint64_t byte = i < 8    ? id >> 8 * i
                                       : i < 16 ? number >> 8 * (i - 8)
                                                : id * 17 + number * 31 + i * 7;
            bytes[i] = static_cast<std::byte>(byte);
        }
    }

    std::vector<std::byte> made(std::uint64_t number) const {
        std::vector<std::byte> bytes(length(number));
        write(bytes, number);
        return bytes;
    }
};

// An exclusive publisher and its topic, with the functions of a publisher.
struct exclusively {
    toroni::exclusive_publisher publisher;
    toroni::exclusive_topic topic;

    template <typename Message> std::uint64_t publish(const Message &message) const {
        return publisher.publish(topic, message);
    }
    template <typename Message> std::optional<std::uint64_t> try_publish(const Message &message) const {
        return publisher.publish(topic, message, std::chrono::seconds(0));
    }
    template <typename Messages> void publish_batch(const Messages &messages) const {
        publisher.publish_batch(topic, messages);
    }
    template <typename Messages> void burst(const Messages &messages) const { publisher.burst(topic, messages); }
    template <typename Fill> void publish_in_place(std::size_t size, const Fill &fill) const {
        publisher.publish_in_place(topic, size, fill);
    }
    std::uint64_t clear() const { return publisher.clear(topic); }
};

template <typename Publisher>
void publish_all(const Publisher &publisher, const message_writer &writer, std::uint64_t wanted,
                 const std::string &mode) {
    std::cout << "ready" << std::endl;
    std::string line;
    if (!std::getline(std::cin, line)) throw std::runtime_error("no line on stdin");

    std::uint64_t number = 0;
    while (number < wanted) {
        if (mode == "one" || mode == "clear") {
            publisher.publish(writer.made(number++));
        } else if (mode == "numbered") {
            std::cout << "sequence\t" << publisher.publish(writer.made(number++)) << '\n';
        } else if (mode == "try") {
            const auto message = writer.made(number++);
            while (!publisher.try_publish(message)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        } else if (mode == "in-place") {
            publisher.publish_in_place(writer.length(number), [&](toroni::writable_bytes bytes) {
                writer.write(bytes, number);
            });
            ++number;
        } else if (mode == "batch" || mode == "burst") {
            std::vector<std::vector<std::byte>> bundle;
            while (bundle.size() < 16 && number < wanted) bundle.push_back(writer.made(number++));
            if (mode == "batch") publisher.publish_batch(bundle);
            else publisher.burst(bundle);
        } else {
            throw std::invalid_argument("MODE is one, try, batch, burst, in-place, numbered, clear, or one of these after "
                                        "exclusive-, or inlet; or one of all these after retained-");
        }
    }
    if (mode == "clear") std::cout << "cleared\t" << publisher.clear() << '\n';
    std::cout << "published\t" << number << std::endl;
}

// Publishes with an inlet, each message twice.
void bring(const toroni::bus &bus, const std::string &on, bool is_retained, const message_writer &writer,
           std::uint64_t wanted) {
    const toroni::inlet inlet(bus);
    toroni::inlet_topic topic = inlet.topic(on);
    if (is_retained) inlet.retain(topic);
    std::cout << "ready" << std::endl;
    std::string line;
    if (!std::getline(std::cin, line)) throw std::runtime_error("no line on stdin");

    const auto source = static_cast<std::uint32_t>(writer.id);
    const std::uint64_t first = 10;
    toroni::lost_messages lost;
    lost.from = {source, 1, 2, 0};
    lost.until = first;
    lost.messages = 7;
    lost.bound = TORONI_BOUND_AT_LEAST;
    lost.reason = TORONI_REASON_BURST;
    lost.scope = {"a/*", "end"};
    inlet.publish_lost(lost);
    inlet.publish_lost(lost);
    std::uint64_t number = 0;
    while (number < wanted) {
        std::vector<std::vector<std::byte>> bundle;
        std::vector<toroni::entry> entries;
        for (bundle.reserve(16); bundle.size() < 16 && number < wanted; ++number) {
            const auto &message = bundle.emplace_back(writer.made(number));
            const toroni::bytes head(message.data(), 16), rest(message.data() + 16, message.size() - 16);
            auto &entry = entries.emplace_back(topic, std::vector<toroni::bytes>{head, rest});
            entry.origin = toroni::origin{source, 1, 2, first + number};
            entry.number = 3 * number;
            entry.timestamp = std::chrono::system_clock::time_point(std::chrono::nanoseconds(number));
        }
        inlet.publish(entries);
        inlet.publish(entries);
    }
    std::cout << "published\t" << number << std::endl;
}

void publish(const std::vector<std::string> &arguments) {
    if (arguments.size() != 6) throw std::invalid_argument("publish BUS TOPIC ID COUNT SIZE MODE");
    const message_writer writer{std::stoull(arguments[2]), std::stoull(arguments[4])};
    if (writer.size < 16) throw std::invalid_argument("SIZE is at least 16");
    std::uint64_t wanted = std::stoull(arguments[3]);
    if (wanted == 0) wanted = UINT64_MAX;
    std::string mode = arguments[5];

    toroni::open_options options;
    options.existence = TORONI_OPEN_EXISTING;
    const toroni::bus bus(arguments[0], options);
    const std::string prefix = "exclusive-", retained = "retained-";
    toroni::publisher_options publishing;
    if (mode.compare(0, retained.size(), retained) == 0) {
        mode.erase(0, retained.size());
        publishing.retained = true;
    }
    if (mode == "inlet") {
        bring(bus, arguments[1], publishing.retained, writer, wanted);
    } else if (mode.compare(0, prefix.size(), prefix) == 0) {
        toroni::exclusive_publisher publisher(bus);
        toroni::exclusive_topic topic = publisher.topic(arguments[1], publishing);
        publish_all(exclusively{std::move(publisher), std::move(topic)}, writer, wanted, mode.substr(prefix.size()));
    } else {
        publish_all(toroni::publisher(bus, arguments[1], publishing), writer, wanted, mode);
    }
}

} // namespace

int main(int count, char **arguments) {
    try {
        publish({arguments + 1, arguments + count});
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
