// The shortest subscriber: subscribe BUS PATTERN writes what is published until it is ended.
#include <csignal>
#include <iostream>
#include <toroni.hpp>

static toroni::subscriber *receiver;

int main(int count, char **arguments) try {
    if (count != 3) return std::cerr << "subscribe BUS PATTERN\n", 2;
    toroni::bus bus(arguments[1]);
    toroni::subscriber subscriber(bus, arguments[2]);
    receiver = &subscriber;
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { receiver->interrupt(); });
    std::cerr << "subscribed" << std::endl;
    // Told, not hidden: go on behind the loss, or ask somebody for the whole state.
    const auto missed = [](toroni::loss loss) { std::cerr << "missed " << loss.messages << '\n'; };
    for (const toroni::message message : subscriber.messages(missed))
        std::cout << message.topic() << ' ' << message.text() << std::endl;
} catch (const toroni::error &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
