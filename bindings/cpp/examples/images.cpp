// A pipeline of images: frames of 1920 x 1080 bytes go from a camera through a filter to a viewer, each a
// process, and no frame is copied on the way but by what computes on it.
//
//     images camera [FRAMES] [PER_SECOND]   writes frames straight into the ring: a bright square that moves
//     images edges                          reads each frame where it lies, and writes the edges in it
//                                           straight into the next message
//     images viewer [FRAMES]                looks for the square in the edges, tells where it is, and how
//                                           long the frames took
//
// The viewer and the filter do not gate: a camera waits for nobody. Who was too slow learns how many messages
// it missed, and what was overwritten while it was read is thrown away, for validate() tells.

#include <toroni.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>

namespace {

constexpr std::size_t width = 1920, height = 1080, square = 200;

// In front of the pixels, one byte each, row by row.
struct header {
    std::uint64_t number;
    std::int64_t taken_ns; // steady clock
};

constexpr std::size_t frame_size = sizeof(header) + width * height;

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// 32 MiB hold some fifteen frames.
toroni::bus open_bus() {
    toroni::open_options options;
    options.capacity = 32 << 20;
    options.policy = toroni::policy::overwrite();
    return toroni::bus("images", options);
}

toroni::subscriber watch(const toroni::bus &bus, const std::string &topic) {
    toroni::subscriber_options options;
    options.patterns = {topic};
    options.gating = false;
    return toroni::subscriber(bus, options);
}

void camera(std::uint64_t frames, std::uint64_t per_second) {
    const toroni::bus bus = open_bus();
    const toroni::publisher publisher(bus, "camera/frame");
    const std::chrono::microseconds interval(1000000 / per_second);
    auto next = std::chrono::steady_clock::now();
    for (std::uint64_t number = 0; number < frames; ++number) {
        publisher.publish_in_place(frame_size, [&](toroni::writable_bytes frame) {
            const header head{number, now_ns()};
            std::memcpy(frame.data(), &head, sizeof head);
            auto *pixels = reinterpret_cast<unsigned char *>(frame.data() + sizeof head);
            std::memset(pixels, 16, width * height);
            // Not at the border, where there would be no edge.
            const std::size_t left = 1 + number * 8 % 1700, top = 1 + number * 4 % 850;
            for (std::size_t y = top; y < top + square; ++y) std::memset(pixels + y * width + left, 235, square);
        });
        // Who was late does not hurry: a burst of frames would overwrite what nobody has looked at yet.
        next = std::max(next + interval, std::chrono::steady_clock::now());
        std::this_thread::sleep_until(next);
    }
}

void edges() {
    const toroni::bus bus = open_bus();
    const toroni::publisher publisher(bus, "camera/edges");
    toroni::subscriber subscriber = watch(bus, "camera/frame");
    std::cerr << "ready" << std::endl;
    for (;;) {
        try {
            const toroni::run run = subscriber.receive_in_place();
            const toroni::message message = run.front();
            if (message.payload().size() != frame_size) continue;
            const auto *from = reinterpret_cast<const unsigned char *>(message.payload().data());
            // From the ring into the ring; it computes under the writer lock, for some ms, as only the camera would
            // wait for it. Whether what was read was a frame is known behind it: if not, the
            // result is given up.
            publisher.publish_in_place(frame_size, [&](toroni::writable_bytes frame) {
                std::memcpy(frame.data(), from, sizeof(header));
                const unsigned char *pixels = from + sizeof(header);
                auto *found = reinterpret_cast<unsigned char *>(frame.data() + sizeof(header));
                std::memset(found, 0, width);
                for (std::size_t i = width; i < width * height; ++i) {
                    const int across = std::abs(pixels[i] - pixels[i - 1]), down = std::abs(pixels[i] - pixels[i - width]);
                    found[i] = static_cast<unsigned char>(std::max(across, down));
                }
                return run.validate(std::nothrow).has_value();
            });
        } catch (const toroni::lapped &lapped) {
            std::cerr << "edges: missed " << lapped.loss().messages << " messages\n";
        }
    }
}

void viewer(std::uint64_t frames) {
    const toroni::bus bus = open_bus();
    toroni::subscriber subscriber = watch(bus, "camera/edges");
    std::cerr << "ready" << std::endl;
    std::int64_t longest_ns = 0;
    for (std::uint64_t seen = 0; seen < frames;) {
        try {
            const toroni::run run = subscriber.receive_in_place();
            const toroni::bytes payload = run.front().payload();
            if (payload.size() != frame_size) continue;
            header head;
            std::memcpy(&head, payload.data(), sizeof head);
            const auto *pixels = reinterpret_cast<const unsigned char *>(payload.data() + sizeof head);
            const auto *end = pixels + width * height;
            const auto first = std::find_if(pixels, end, [](unsigned char edge) { return edge > 100; }) - pixels;
            run.validate(); // only now: where it was found, and when it was taken
            longest_ns = std::max(longest_ns, now_ns() - head.taken_ns);
            std::cout << "frame " << head.number << ": square at " << static_cast<std::size_t>(first) % width << ' '
                      << static_cast<std::size_t>(first) / width << '\n';
            ++seen;
        } catch (const toroni::lapped &lapped) {
            std::cerr << "viewer: missed " << lapped.loss().messages << " messages\n";
        }
    }
    std::cout << frames << " frames, the slowest took " << longest_ns / 1000 << " us" << std::endl;
}

std::uint64_t number(int count, char **arguments, int at, std::uint64_t otherwise) {
    return count > at ? std::stoull(arguments[at]) : otherwise;
}

} // namespace

int main(int count, char **arguments) try {
    const std::string part = count > 1 ? arguments[1] : "";
    if (part == "camera") camera(number(count, arguments, 2, UINT64_MAX), number(count, arguments, 3, 60));
    else if (part == "edges") edges();
    else if (part == "viewer") viewer(number(count, arguments, 2, UINT64_MAX));
    else return std::cerr << "images camera [FRAMES] [PER_SECOND] | edges | viewer [FRAMES]\n", 2;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
