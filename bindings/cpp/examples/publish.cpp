// The shortest publisher: publish BUS TOPIC TEXT.
#include <iostream>
#include <toroni.hpp>

int main(int count, char **arguments) try {
    if (count != 4) return std::cerr << "publish BUS TOPIC TEXT\n", 2;
    toroni::bus bus(arguments[1]); // creates it if it does not exist
    toroni::publisher publisher(bus, arguments[2]);
    publisher.publish(arguments[3]);
} catch (const toroni::error &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
