// What the programs of the conformance test in C++ have in common that write messages and values.
#ifndef CONFORMANCE_COMMON_HPP
#define CONFORMANCE_COMMON_HPP

#include <toroni.hpp>

#include <cstdint>
#include <iomanip>
#include <iostream>
#include <string>

inline std::uint64_t hash(toroni::bytes bytes) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const std::byte byte : bytes) hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
    return hash;
}

inline void show(const toroni::origin &from) {
    std::cout << from.source << '.' << from.series << '.' << from.stream << '.' << from.number;
}

// Writes the line of a message or a value.
template <typename Message> void show(const char *what, const Message &message, std::uint64_t hash) {
    std::cout << what << '\t' << std::dec << message.sequence() << '\t' << message.topic() << '\t'
              << message.payload().size() << '\t' << std::hex << std::setw(16) << std::setfill('0') << hash << std::dec
              << '\t';
    if (const auto from = message.origin()) show(*from);
    else std::cout << '-';
    std::cout << '\t' << (message.number() ? std::to_string(*message.number()) : "-") << std::endl;
}

inline void show(const toroni::missing_value &missing) {
    std::cout << "missing\t" << missing.sequence << '\t' << missing.topic << '\t' << missing.length << std::endl;
}

#endif
