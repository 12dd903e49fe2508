// The observer of the conformance test in C++; bindings/conformance/README.md describes its arguments and output.

#include <toroni.hpp>

#include <iostream>
#include <stdexcept>
#include <string>

namespace {

void show(const char *what, const std::string &name, bool alive, bool stopped, bool dumping) {
    std::cout << what << '\t' << name << '\t' << alive << '\t' << stopped << '\t' << dumping << '\n';
}

void observe(const std::vector<std::string> &arguments) {
    if (arguments.size() != 1) throw std::invalid_argument("observe BUS");
    toroni::open_options options;
    options.existence = TORONI_OPEN_EXISTING;
    const toroni::stats stats = toroni::bus(arguments[0], options).stats();
    if (const auto owner = stats.lock_owner())
        show("lock", "-", owner->alive == true, owner->stopped, owner->dumping);
    for (const auto &one : stats.publishers()) show("publisher", one.name, one.alive, one.stopped, one.dumping);
    for (const auto &one : stats.subscribers()) show("subscriber", one.name, one.alive, one.stopped, one.dumping);
}

} // namespace

int main(int count, char **arguments) {
    try {
        observe({arguments + 1, arguments + count});
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
