// The shortest subscriber: subscribe BUS PATTERN writes what is published until it is ended.
#include <csignal>
#include <iostream>
#include <toroni.hpp>

static toroni::subscriber *receiver;

// While it is there, SIGINT and SIGTERM end the range over a subscriber; behind it they do nothing, as a second one
// must not come upon a subscriber that is gone.
struct ended_by_signals {
    explicit ended_by_signals(toroni::subscriber &subscriber) {
        receiver = &subscriber;
        for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { receiver->interrupt(); });
    }
    ~ended_by_signals() {
        for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_IGN);
    }
};

int main(int count, char **arguments) try {
    if (count != 3) return std::cerr << "subscribe BUS PATTERN\n", 2;
    toroni::bus bus(arguments[1]);
    toroni::subscriber subscriber(bus, arguments[2]);
    const ended_by_signals guard(subscriber);
    std::cerr << "subscribed" << std::endl;
    // Told, not hidden: go on behind the loss, or ask somebody for the whole state.
    const auto missed = [](toroni::loss loss) { std::cerr << "missed " << loss.messages << '\n'; };
    for (const toroni::message message : subscriber.messages(missed))
        std::cout << message.topic() << ' ' << message.text() << std::endl;
} catch (const toroni::error &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
