// The shortest subscriber: subscribe BUS PATTERN prints messages until SIGINT or SIGTERM ends it.
#include <csignal>
#include <iostream>
#include <toroni.hpp>

static toroni::subscriber *receiver;

// While this object exists, SIGINT and SIGTERM end the range over a subscriber. Afterwards they do nothing, because a
// second signal must not interrupt a subscriber that no longer exists.
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
    // Messages were lost. Continue, as here, or request the whole state from its publisher.
    const auto missed = [](toroni::loss loss) { std::cerr << "missed " << loss.messages << '\n'; };
    for (const toroni::message message : subscriber.messages(missed))
        std::cout << message.topic() << ' ' << message.text() << std::endl;
} catch (const toroni::error &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
