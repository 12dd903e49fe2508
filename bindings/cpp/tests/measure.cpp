// Measures publishing and receiving in C++, as bindings/c/tests/measure.c does in C.

#include <toroni.hpp>

#include <cstdlib>
#include <cstring>
#include <iostream>

namespace {

using steady = std::chrono::steady_clock;

unsigned long long sum;

void use(const toroni::message &message) { sum += std::to_integer<unsigned>(*message.payload().data()); }

void receive(toroni::subscriber &subscriber, std::size_t count) {
    for (; count > 0; --count) use(subscriber.receive());
}

void receive_in_place(toroni::subscriber &subscriber, std::size_t count) {
    while (count > 0) {
        const toroni::run run = subscriber.receive_in_place();
        for (const toroni::message message : run) use(message), --count;
        run.validate();
    }
}

struct way {
    const char *name;
    std::function<void(std::size_t)> send;
    const char *reception;
    void (*receive)(toroni::subscriber &, std::size_t);
};

} // namespace

int main(int count, char **arguments) try {
    const double seconds = count > 1 ? std::atof(arguments[1]) : 1.0;
    toroni::open_options options;
    options.capacity = 64 << 20;
    const toroni::bus bus("measure", options);
    const toroni::publisher publisher(bus, "t");
    for (const std::size_t length : {std::size_t(8), std::size_t(1024)}) {
        const std::size_t some = ((std::size_t(16) << 20) / (length + 8)) / 64 * 64;
        const std::vector<char> payload(length);
        const std::vector<toroni::bytes> bundle(64, payload);
        const way ways[] = {
            {"publish", [&](std::size_t left) { for (; left > 0; --left) publisher.publish(payload); }, "receive", receive},
            {"batch of 64", [&](std::size_t left) { for (; left > 0; left -= 64) publisher.publish_batch(bundle); },
             "receive in place", receive_in_place},
            {"burst of 64", [&](std::size_t left) { for (; left > 0; left -= 64) publisher.burst(bundle); }, nullptr, receive},
            {"in place",
             [&](std::size_t left) {
                 for (; left > 0; --left)
                     publisher.publish_in_place(length, [&](toroni::writable_bytes bytes) {
                         std::memcpy(bytes.data(), payload.data(), length);
                     });
             },
             nullptr, receive}};
        for (const way &one : ways) {
            std::chrono::duration<double> sending{}, receiving{};
            std::size_t sent = 0;
            toroni::subscriber subscriber(bus, "t");
            while ((sending + receiving).count() < seconds) {
                auto began = steady::now();
                one.send(some);
                sending += steady::now() - began;
                began = steady::now();
                one.receive(subscriber, some);
                receiving += steady::now() - began;
                sent += some;
            }
            std::cout << std::fixed;
            std::cout.precision(0);
            const auto print = [&](const char *what, std::chrono::duration<double> time) {
                std::cout << "c++\t" << what << '\t' << length << '\t' << static_cast<double>(sent) / time.count() << std::endl;
            };
            print(one.name, sending);
            if (one.reception) print(one.reception, receiving);
        }
    }
    return sum == 1; // used, so that the compiler does not omit it
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
