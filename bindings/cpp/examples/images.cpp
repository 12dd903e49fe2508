// A pipeline of images: frames of 1920 x 1080 bytes pass from a camera through a filter to a viewer. Each is a
// process, and none of them copies a frame except to compute with it.
//
//     images camera [FRAMES] [PER_SECOND]   writes frames in place: a bright square that moves
//     images edges                          reads each frame in place, and writes its edges in place to the next
//                                           message
//     images viewer [FRAMES]                finds the square in the edges, and prints its position and how long
//                                           the slowest frame took
//
// The filter and the viewer do not gate, so the camera never waits. A process that is too slow learns how many messages
// it missed. If a frame was overwritten while it was read, validate() reports that and the result is discarded.

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

// Precedes the pixels, which are one byte each, row by row.
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

// 32 MiB hold about fifteen frames.
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
            // Not at the border, where it would have no edge.
            const std::size_t left = 1 + number * 8 % 1700, top = 1 + number * 4 % 850;
            for (std::size_t y = top; y < top + square; ++y) std::memset(pixels + y * width + left, 235, square);
        });
        // A late camera does not catch up: a burst of frames would overwrite frames that were not read yet.
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
            // Reads from the ring and writes to the ring. This computes under the writer lock for some milliseconds,
            // which is acceptable here, as only the camera waits for the lock. If the frame was overwritten
            // meanwhile, the validation at the end fails, and the result is given up.
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
            run.validate(); // before anything that was read is used
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
