// A state and its changes: `state BUS VALUE` sets the setpoint, which the bus retains. If VALUE is empty, it clears the
// setpoint. `state BUS` reads it, whenever it starts, and then prints each change until SIGINT or SIGTERM ends it.
#include <csignal>
#include <iostream>
#include <toroni.hpp>

static toroni::subscriber *receiver;

static void set(const toroni::bus &bus, const std::string &value) {
    toroni::publisher_options options;
    options.retained = true;
    const toroni::publisher setpoint(bus, "plant/setpoint", options);
    if (value.empty()) setpoint.clear();
    else setpoint.publish(value);
}

static void follow(const toroni::bus &bus) {
    toroni::subscriber_options options;
    options.patterns = {"plant/setpoint"};
    options.retained = true;
    toroni::subscriber subscriber(bus, options);
    receiver = &subscriber;
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { receiver->interrupt(); });
    if (subscriber.is_current()) std::cout << "no setpoint yet" << std::endl;
    // Lost messages are no harm: the newest value follows.
    for (const toroni::message message : subscriber.messages([](toroni::loss) {})) {
        if (message.is_cleared()) std::cout << "no setpoint" << std::endl;
        else std::cout << (message.is_retained() ? "is " : "becomes ") << message.text() << std::endl;
    }
    // A second signal must not interrupt a subscriber that no longer exists.
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_IGN);
}

int main(int count, char **arguments) try {
    if (count != 2 && count != 3) return std::cerr << "state BUS [VALUE]\n", 2;
    const toroni::bus bus(arguments[1]);
    if (count == 3) set(bus, arguments[2]);
    else follow(bus);
} catch (const toroni::error &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
