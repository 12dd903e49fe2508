// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Toroni for C++17. This header wraps toroni.h, which documents each function: what it does, which threads may call
// it, and its errors. The comments here describe what C++ adds.
//
// One process publishes:
//
//     toroni::bus bus("demo");
//     toroni::publisher publisher(bus, "plant/boiler/temperature");
//     publisher.publish("351.2");
//
// Another one receives:
//
//     toroni::bus bus("demo");
//     toroni::subscriber subscriber(bus, "plant/**");
//     for (toroni::message message : subscriber) std::cout << message.topic() << ' ' << message.text() << std::endl;
//
// Handles. Destructors close the handles. A handle can be moved, but not copied. A handle that was moved from is
// empty, and calls on it fail with TORONI_INVALID_ARGUMENT.
//
// Errors. Functions throw toroni::error, or toroni::lapped, toroni::lost, toroni::value_missing, toroni::interrupted,
// toroni::exclusive_error and toroni::taken_error, which derive from it. If no message is available, or if a time limit
// expires, that is not an error: such functions return a std::optional or a bool.
//
// A function that takes std::nothrow as its last argument returns a toroni::result instead, which contains either the
// value or the error. It throws nothing except std::bad_alloc. For a constructor, open() is this form. The following
// have no such form:
//   - functions that call your code, which may throw: publish_in_place, iterators, and all functions of a router;
//   - bursts and inlet::publish, whose exception contains the number of messages that were published;
//   - default_directory(), and the functions of toroni::stats.
#ifndef TORONI_HPP
#define TORONI_HPP

#include "toroni.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace toroni {

// ---- names and losses of messages from elsewhere --------------------------------------------------------

// Names a message that was first published elsewhere: toroni_origin.
struct origin {
    std::uint32_t source = 0;
    std::uint32_t series = 0;
    std::uint16_t stream = 0;
    std::uint64_t number = 0; // less than TORONI_NUMBER_LIMIT

    friend bool operator==(const origin &one, const origin &other) {
        return one.source == other.source && one.series == other.series && one.stream == other.stream &&
               one.number == other.number;
    }
    friend bool operator!=(const origin &one, const origin &other) { return !(one == other); }
};

namespace detail {

inline toroni_origin given(const origin &from) {
    return {from.number, from.source, from.series, from.stream, {0, 0, 0}};
}

inline origin received(const toroni_origin &from) { return {from.source, from.series, from.stream, from.number}; }

} // namespace detail

// Messages that were lost on their way to the bus: toroni_lost.
struct lost_messages {
    origin from;                    // the stream, and the first number that may be lost
    std::uint64_t until = 0;        // the number after the last one that may be lost
    std::uint64_t messages = 0;     // how many were lost
    int bound = TORONI_BOUND_EXACT; // TORONI_BOUND_...: how exact that is
    int reason = 0;                 // TORONI_REASON_...
    std::vector<std::string> scope; // patterns of the topics that they may have had
};

namespace detail {

inline lost_messages received(const toroni_lost &from) {
    return {received(from.from), from.until,  from.messages,
            from.bound,          from.reason, {from.scope, from.scope + from.scope_count}};
}

} // namespace detail

// ---- errors ---------------------------------------------------------------------------------------------

// The numbers of messages and bytes that were overwritten before they were read.
using loss = toroni_loss;

// An error of the library. what() says what happened and what to do.
class error : public std::runtime_error {
public:
    error(toroni_status status, const std::string &text) : std::runtime_error(text), status_(status) {}
    toroni_status status() const noexcept { return status_; }

private:
    toroni_status status_;
};

// TORONI_LAPPED: the subscriber was too slow and missed messages. Call again to continue after them.
class lapped : public error {
public:
    lapped(const std::string &text, toroni::loss loss) : error(TORONI_LAPPED, text), loss_(loss) {}
    toroni::loss loss() const noexcept { return loss_; }

private:
    toroni::loss loss_;
};

// TORONI_LOST: messages from elsewhere were lost on their way to the bus. Call again to continue after them.
class lost : public error {
public:
    lost(const std::string &text, lost_messages messages) : error(TORONI_LOST, text), messages_(std::move(messages)) {}
    const lost_messages &messages() const noexcept { return messages_; }

private:
    lost_messages messages_;
};

// A value for which the bus had no room: toroni_missing.
struct missing_value {
    std::string topic;
    std::uint64_t sequence = 0; // of the newest message of the topic
    std::uint64_t length = 0;   // bytes of that message, and of what it carries besides
};

// TORONI_VALUE_MISSING: the topic has a value for which the bus had no room. A subscriber continues with the next call.
class value_missing : public error {
public:
    value_missing(const std::string &text, missing_value value)
        : error(TORONI_VALUE_MISSING, text), value_(std::move(value)) {}
    const missing_value &value() const noexcept { return value_; }

private:
    missing_value value_;
};

// TORONI_INTERRUPTED: interrupt() ended the wait.
class interrupted : public error {
public:
    explicit interrupted(const std::string &text) : error(TORONI_INTERRUPTED, text) {}
};

// TORONI_EXCLUSIVE: the bus has an exclusive publisher, which what() names. No other one can publish until it is
// closed.
class exclusive_error : public error {
public:
    explicit exclusive_error(const std::string &text) : error(TORONI_EXCLUSIVE, text) {}
};

// TORONI_TAKEN: another inlet, which what() names, brings the messages of this stream. This one can when the other is
// closed.
class taken_error : public error {
public:
    explicit taken_error(const std::string &text) : error(TORONI_TAKEN, text) {}
};

// An error as a value.
struct failure {
    toroni_status status;
    std::string text;
    toroni::loss loss; // for TORONI_LAPPED; else zeros
    std::optional<lost_messages> lost_on_the_way = {}; // for TORONI_LOST
    std::optional<missing_value> missing = {};         // for TORONI_VALUE_MISSING

    // Throws it as an exception.
    [[noreturn]] void raise() const {
        if (status == TORONI_LAPPED) throw lapped(text, loss);
        if (status == TORONI_LOST && lost_on_the_way) throw lost(text, *lost_on_the_way);
        if (status == TORONI_VALUE_MISSING && missing) throw value_missing(text, *missing);
        if (status == TORONI_INTERRUPTED) throw interrupted(text);
        if (status == TORONI_EXCLUSIVE) throw exclusive_error(text);
        if (status == TORONI_TAKEN) throw taken_error(text);
        throw error(status, text);
    }
};

// A value or an error. The names are those of std::expected in C++23.
template <typename T> class [[nodiscard]] result {
public:
    result(T value) : content_(std::in_place_index<0>, std::move(value)) {}
    result(failure why) : content_(std::in_place_index<1>, std::move(why)) {}

    bool has_value() const noexcept { return content_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }
    // Return the value, or throw the error.
    T &value() & { return check(), std::get<0>(content_); }
    const T &value() const & { return check(), std::get<0>(content_); }
    T &&value() && { return check(), std::get<0>(std::move(content_)); }
    // Return the value. Undefined if there is none.
    T &operator*() & noexcept { return *std::get_if<0>(&content_); }
    const T &operator*() const & noexcept { return *std::get_if<0>(&content_); }
    T &&operator*() && noexcept { return std::move(*std::get_if<0>(&content_)); }
    T *operator->() noexcept { return std::get_if<0>(&content_); }
    const T *operator->() const noexcept { return std::get_if<0>(&content_); }
    // Returns the error. Undefined if there is a value.
    const failure &error() const noexcept { return *std::get_if<1>(&content_); }

private:
    void check() const {
        if (!has_value()) error().raise();
    }
    std::variant<T, failure> content_;
};

// Success or an error.
template <> class [[nodiscard]] result<void> {
public:
    result() = default;
    result(failure why) : failure_(std::move(why)) {}

    bool has_value() const noexcept { return !failure_; }
    explicit operator bool() const noexcept { return has_value(); }
    // Throws the error if there is one.
    void value() const {
        if (failure_) failure_->raise();
    }
    // Returns the error. Undefined on success.
    const failure &error() const noexcept { return *failure_; }

private:
    std::optional<failure> failure_;
};

namespace detail {

struct close {
    void operator()(toroni_bus *handle) const noexcept { toroni_bus_close(handle); }
    void operator()(toroni_publisher *handle) const noexcept { toroni_publisher_close(handle); }
    void operator()(toroni_exclusive *handle) const noexcept { toroni_exclusive_close(handle); }
    void operator()(toroni_exclusive_topic *handle) const noexcept { toroni_exclusive_topic_close(handle); }
    void operator()(toroni_inlet *handle) const noexcept { toroni_inlet_close(handle); }
    void operator()(toroni_inlet_topic *handle) const noexcept { toroni_inlet_topic_close(handle); }
    void operator()(toroni_subscriber *handle) const noexcept { toroni_subscriber_close(handle); }
    void operator()(toroni_router *handle) const noexcept { toroni_router_close(handle); }
    void operator()(toroni_stats *handle) const noexcept { toroni_stats_close(handle); }
    void operator()(toroni_topics *handle) const noexcept { toroni_topics_close(handle); }
    void operator()(toroni_values *handle) const noexcept { toroni_values_close(handle); }
    void operator()(toroni_bus_list *handle) const noexcept { toroni_bus_list_close(handle); }
    void operator()(toroni_clean_report *handle) const noexcept { toroni_clean_report_close(handle); }
};

template <typename T> using handle = std::unique_ptr<T, close>;

// Call it directly after the call that failed, in the same thread.
inline failure last_failure(int status, toroni::loss loss = {0, 0}) {
    failure why{static_cast<toroni_status>(status), toroni_error_message(), loss, {}, {}};
    toroni_missing last;
    if (status == TORONI_VALUE_MISSING && toroni_last_missing(&last) == TORONI_OK && last.topic)
        why.missing = missing_value{last.topic, last.sequence, last.length};
    return why;
}

inline result<void> done(int status) {
    if (status != TORONI_OK) return last_failure(status);
    return {};
}

// Converts a duration for the C functions. A negative one becomes 0.
template <typename Rep, typename Period> std::uint64_t ns(std::chrono::duration<Rep, Period> time) {
    if (time <= time.zero()) return 0;
    // More nanoseconds than an int64_t can count, which is 292 years.
    if (time >= std::chrono::duration<double>(9e9)) return TORONI_FOREVER;
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

// Converts nanoseconds. More than 292 years become 292 years.
inline std::chrono::nanoseconds duration(std::uint64_t ns) {
    const std::uint64_t most = std::chrono::nanoseconds::max().count();
    return std::chrono::nanoseconds(static_cast<std::int64_t>(ns < most ? ns : most));
}

// Converts nanoseconds since 1970.
inline std::chrono::system_clock::time_point time(std::uint64_t ns) {
    return std::chrono::system_clock::time_point(
        std::chrono::duration_cast<std::chrono::system_clock::duration>(duration(ns)));
}

// Converts a point in time to nanoseconds since 1970. An earlier one becomes 0.
inline std::uint64_t since_1970(std::chrono::system_clock::time_point time) { return ns(time.time_since_epoch()); }

inline const char *or_null(const std::optional<std::string> &text) { return text ? text->c_str() : nullptr; }
inline std::optional<std::string> or_none(const char *text) {
    return text ? std::optional<std::string>(text) : std::nullopt;
}

} // namespace detail

// ---- bytes ----------------------------------------------------------------------------------------------

// A view of bytes: of a string, of a vector or array of numbers, or of any pointer and length. It does not own them.
class bytes {
public:
    bytes() = default;
    bytes(const void *data, std::size_t size) : data_(static_cast<const std::byte *>(data)), size_(size) {}
    // A text that ends with 0.
    template <typename Text, typename = std::enable_if_t<std::is_same_v<Text, const char *> || std::is_same_v<Text, char *>>>
    bytes(const Text &text) : bytes(std::string_view(text)) {}
    // A text that ends with the first 0, or else with the array.
    template <std::size_t Size> bytes(const char (&text)[Size]) : bytes(text, length(text, Size)) {}
    bytes(std::string_view text) : bytes(text.data(), text.size()) {}
    bytes(const std::string &text) : bytes(text.data(), text.size()) {}
    // A contiguous container of trivially copyable elements.
    template <typename Container, typename Element = std::remove_pointer_t<decltype(std::data(
                                      std::declval<const Container &>()))>,
              typename = std::enable_if_t<std::is_trivially_copyable_v<Element> &&
                                          !std::is_convertible_v<const Container &, std::string_view>>>
    bytes(const Container &container) : bytes(std::data(container), std::size(container) * sizeof(Element)) {}

    const std::byte *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    const std::byte *begin() const noexcept { return data_; }
    const std::byte *end() const noexcept { return data_ + size_; }
    std::string_view text() const noexcept { return {reinterpret_cast<const char *>(data_), size_}; }

private:
    static std::size_t length(const char *text, std::size_t most) noexcept {
        const void *const end = std::memchr(text, 0, most);
        return end ? static_cast<std::size_t>(static_cast<const char *>(end) - text) : most;
    }
    const std::byte *data_ = nullptr;
    std::size_t size_ = 0;
};

// Memory in the ring to which publish_in_place writes a message. It is aligned to 8.
class writable_bytes {
public:
    writable_bytes(void *data, std::size_t size) : data_(static_cast<std::byte *>(data)), size_(size) {}
    std::byte *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    std::byte *begin() const noexcept { return data_; }
    std::byte *end() const noexcept { return data_ + size_; }
    std::byte &operator[](std::size_t index) const noexcept { return data_[index]; }

private:
    std::byte *data_;
    std::size_t size_;
};

// ---- a bus ----------------------------------------------------------------------------------------------

// What publishers do when the ring is full because a subscriber is slow. The default is TORONI_POLICY_DEFAULT.
struct policy : toroni_policy {
    // Waits for at most `limit`, and then overwrites what the subscriber has not read.
    template <typename Duration> static policy wait(Duration limit) {
        return policy(TORONI_POLICY_WAIT, detail::ns(limit), 0, 0);
    }
    // Waits as long as the subscriber lives.
    static policy wait_as_long_as_it_lives() { return policy(TORONI_POLICY_WAIT, TORONI_FOREVER, 0, 0); }
    // Never waits.
    static policy overwrite() { return policy(TORONI_POLICY_OVERWRITE, 0, 0, 0); }
    // All publishers together wait for at most `budget` in each interval of `per`.
    template <typename Budget, typename Per> static policy bounded(Budget budget, Per per) {
        return policy(TORONI_POLICY_BOUNDED, 0, detail::ns(budget), detail::ns(per));
    }
    policy() : policy(TORONI_POLICY_DEFAULT, 0, 0, 0) {}

private:
    policy(int its_kind, std::uint64_t limit, std::uint64_t budget, std::uint64_t per)
        : toroni_policy{its_kind, limit, budget, per} {}
};

// How a bus is opened. The fields are those of toroni_open_options; 0 and std::nullopt are the defaults.
struct open_options {
    int existence = TORONI_OPEN_OR_CREATE;
    int lock = TORONI_LOCK_LEASE;
    int notify = TORONI_NOTIFY_FUTEX;
    std::array<std::uint8_t, 4> multicast_address{}; // for TORONI_NOTIFY_MULTICAST
    std::uint16_t multicast_port = 0;
    std::optional<std::string> directory;
    std::uint64_t capacity = 0;
    std::uint64_t topic_table_bytes = 0;
    std::uint32_t max_publishers = 0;
    std::uint32_t max_subscribers = 0;
    std::uint32_t max_arrivals = 0; // TORONI_NO_ARRIVALS: none
    std::uint32_t retained_topics = 0; // TORONI_NO_RETAINED: none
    std::uint64_t retained_bytes = 0;
    toroni::policy policy;
    std::uint32_t flags = 0;   // TORONI_FLAG_...
    std::uint32_t require = 0; // TORONI_REQUIRE_...
    std::uint32_t mode = 0;
    std::uint32_t owner = 0;
    std::optional<std::string> writers_group;
    std::optional<std::string> readers_group;
    std::optional<std::string> participant_name;
};

// A publishing participant: toroni_publisher_info.
struct publisher_info {
    std::string name;
    std::uint32_t slot;
    std::uint32_t pid;
    bool alive;
    bool stopped;
    std::uint64_t messages;
    std::uint64_t bytes;
    std::uint64_t waits;
    std::chrono::nanoseconds waited;
    std::uint64_t overwrites;
    std::uint64_t wakes;
    std::chrono::system_clock::time_point started;
    bool same_pid_namespace;
    bool dumping; // it crashed, and its core dump is being written
};

// A subscriber of the bus: toroni_subscriber_info.
struct subscriber_info {
    std::string name;
    std::uint32_t slot;
    std::uint32_t pid;
    bool alive;
    bool stopped;
    bool gating;
    bool lapped_now;
    std::uint64_t position;
    std::uint64_t lag_bytes;
    std::uint64_t received;
    std::uint64_t lost_messages;
    std::uint64_t lapses;
    std::chrono::system_clock::time_point started;
    bool same_pid_namespace;
    std::optional<std::vector<std::string>> patterns; // std::nullopt if they cannot be read
    bool patterns_truncated;                          // it has more patterns than these
    bool dumping;                                     // as in publisher_info
    std::uint64_t losses;                             // as in toroni_subscriber_info
    std::uint64_t lost_on_the_way;
};

// The participant that holds the writer lock: toroni_lock_owner. std::nullopt stands for what is not known.
struct lock_owner {
    std::optional<std::uint32_t> slot;
    std::optional<std::uint32_t> pid;
    std::optional<bool> alive;
    bool stopped;
    bool dumping;
    bool exclusive; // it is an exclusive publisher
};

// A snapshot of a bus and its participants. What it returns are copies, which outlive it. Its functions throw
// TORONI_INVALID_ARGUMENT if it was moved from.
class stats {
public:
    toroni_bus_stats bus() const {
        const toroni_bus_stats *taken = toroni_stats_bus(handle_.get());
        if (!taken) detail::last_failure(TORONI_INVALID_ARGUMENT).raise();
        return *taken;
    }
    std::vector<publisher_info> publishers() const {
        bus();
        std::vector<publisher_info> all;
        for (std::size_t i = 0; i < toroni_stats_publisher_count(handle_.get()); ++i) {
            const toroni_publisher_info &one = *toroni_stats_publisher(handle_.get(), i);
            all.push_back({one.name, one.slot, one.pid, one.alive != 0, one.stopped != 0, one.messages, one.bytes,
                           one.waits, detail::duration(one.waited_ns), one.overwrites, one.wakes,
                           detail::time(one.started_ns), one.same_pid_namespace != 0, one.dumping != 0});
        }
        return all;
    }
    std::vector<subscriber_info> subscribers() const {
        bus();
        std::vector<subscriber_info> all;
        for (std::size_t i = 0; i < toroni_stats_subscriber_count(handle_.get()); ++i) {
            const toroni_subscriber_info &one = *toroni_stats_subscriber(handle_.get(), i);
            std::optional<std::vector<std::string>> patterns;
            if (one.patterns_truncated >= 0) patterns.emplace(one.patterns, one.patterns + one.pattern_count);
            all.push_back({one.name, one.slot, one.pid, one.alive != 0, one.stopped != 0, one.gating != 0,
                           one.lapped_now != 0, one.position, one.lag_bytes, one.received, one.lost_messages,
                           one.lapses, detail::time(one.started_ns), one.same_pid_namespace != 0,
                           std::move(patterns), one.patterns_truncated > 0, one.dumping != 0, one.losses,
                           one.lost_on_the_way});
        }
        return all;
    }
    // Returns the participant that held the writer lock, if one did.
    std::optional<toroni::lock_owner> lock_owner() const {
        bus();
        const toroni_lock_owner *const one = toroni_stats_lock_owner(handle_.get());
        if (!one) return std::nullopt;
        return toroni::lock_owner{one->slot == TORONI_NO_SLOT ? std::nullopt : std::optional(one->slot),
                                  one->pid == 0 ? std::nullopt : std::optional(one->pid),
                                  one->alive < 0 ? std::nullopt : std::optional(one->alive != 0), one->stopped != 0,
                                  one->dumping != 0, one->exclusive != 0};
    }
    // Returns the names of the files in `sockets/`.
    std::vector<std::string> sockets() const {
        bus();
        std::vector<std::string> all;
        for (std::size_t i = 0; i < toroni_stats_socket_count(handle_.get()); ++i)
            all.emplace_back(toroni_stats_socket(handle_.get(), i));
        return all;
    }

private:
    friend class bus;
    explicit stats(toroni_stats *handle) : handle_(handle) {}
    detail::handle<toroni_stats> handle_;
};

// What the ring holds of one topic, and its value: toroni_topic_info.
struct topic_info {
    std::string name;
    std::uint64_t messages; // that can still be read
    std::uint64_t bytes;    // of the payloads of these messages
    int value;              // TORONI_TOPIC_..., or -1
    std::uint64_t value_sequence;
    std::uint64_t value_bytes;
    std::optional<std::chrono::system_clock::time_point> value_published; // std::nullopt if that is not known
};

// The value of a retained topic: a copy of its newest message. Its functions return what those of message do.
class retained_message {
public:
    std::string_view topic() const noexcept { return topic_; }
    bytes payload() const noexcept { return payload_; }
    std::string_view text() const noexcept { return payload_; }
    std::uint64_t sequence() const noexcept { return sequence_; }
    std::uint64_t position() const noexcept { return position_; }
    bool to_descendants() const noexcept { return to_descendants_; }
    std::optional<std::chrono::system_clock::time_point> timestamp() const { return timestamp_; }
    std::optional<toroni::origin> origin() const { return origin_; }
    std::optional<std::uint64_t> number() const { return number_; }

private:
    friend class bus;
    explicit retained_message(const toroni_value &content)
        : topic_(content.topic), payload_(static_cast<const char *>(content.payload), content.payload_length),
          sequence_(content.sequence), position_(content.position),
          to_descendants_(content.flags & TORONI_MESSAGE_TO_DESCENDANTS) {
        if (content.flags & TORONI_MESSAGE_HAS_TIMESTAMP) timestamp_ = detail::time(content.timestamp_ns);
        if (content.flags & TORONI_MESSAGE_HAS_ORIGIN) origin_ = detail::received(content.origin);
        if (content.flags & TORONI_MESSAGE_HAS_NUMBER) number_ = content.number;
    }
    std::string topic_, payload_;
    std::uint64_t sequence_, position_;
    bool to_descendants_;
    std::optional<std::chrono::system_clock::time_point> timestamp_;
    std::optional<toroni::origin> origin_;
    std::optional<std::uint64_t> number_;
};

// An opened bus. Any number of threads may use it at the same time.
class bus {
public:
    // Opens a bus, and creates it if it does not exist and the options allow that.
    explicit bus(const std::string &name, const open_options &options = {})
        : bus(open(name, options, std::nothrow).value()) {}

    static result<bus> open(const std::string &name, const open_options &options, std::nothrow_t) {
        toroni_open_options given = TORONI_OPEN_OPTIONS_INIT;
        given.existence = options.existence;
        given.lock = options.lock;
        given.notify = options.notify;
        std::copy(options.multicast_address.begin(), options.multicast_address.end(), given.multicast_address);
        given.multicast_port = options.multicast_port;
        given.directory = detail::or_null(options.directory);
        given.capacity = options.capacity;
        given.topic_table_bytes = options.topic_table_bytes;
        given.max_publishers = options.max_publishers;
        given.max_subscribers = options.max_subscribers;
        given.max_arrivals = options.max_arrivals;
        given.retained_topics = options.retained_topics;
        given.retained_bytes = options.retained_bytes;
        given.policy = options.policy;
        given.flags = options.flags;
        given.require = options.require;
        given.mode = options.mode;
        given.owner = options.owner;
        given.writers_group = detail::or_null(options.writers_group);
        given.readers_group = detail::or_null(options.readers_group);
        given.participant_name = detail::or_null(options.participant_name);
        toroni_bus *handle = nullptr;
        const int status = toroni_bus_open(name.c_str(), &given, &handle);
        if (status != TORONI_OK) return detail::last_failure(status);
        return bus(handle);
    }

    // Return the name, the directory and the id of the bus; "" if this object was moved from.
    std::string_view name() const { return text(toroni_bus_name(handle_.get())); }
    std::string_view path() const { return text(toroni_bus_path(handle_.get())); }
    std::string_view id() const { return text(toroni_bus_id(handle_.get())); }

    // Takes a snapshot of the bus.
    toroni::stats stats() const { return stats(std::nothrow).value(); }
    result<toroni::stats> stats(std::nothrow_t) const {
        toroni_stats *taken = nullptr;
        const int status = toroni_bus_take_stats(handle_.get(), &taken);
        if (status != TORONI_OK) return detail::last_failure(status);
        return toroni::stats(taken);
    }

    // Returns the topics, sorted by name.
    std::vector<topic_info> topics() const { return topics(std::nothrow).value(); }
    result<std::vector<topic_info>> topics(std::nothrow_t) const {
        toroni_topics *taken = nullptr;
        const int status = toroni_bus_take_topics(handle_.get(), &taken);
        if (status != TORONI_OK) return detail::last_failure(status);
        const detail::handle<toroni_topics> owner(taken);
        std::vector<topic_info> all;
        for (std::size_t i = 0; i < toroni_topics_count(taken); ++i) {
            const toroni_topic_info &one = *toroni_topics_at(taken, i);
            all.push_back({one.name, one.messages, one.bytes, one.value, one.value_sequence, one.value_bytes,
                           one.value_published_ns ? std::optional(detail::time(one.value_published_ns)) : std::nullopt});
        }
        return all;
    }

    // Returns the value of a topic, if it has one; see toroni_bus_retained. Throws value_missing.
    std::optional<retained_message> retained(const std::string &topic) const {
        return retained(topic, std::nothrow).value();
    }
    result<std::optional<retained_message>> retained(const std::string &topic, std::nothrow_t) const {
        toroni_values *taken = nullptr;
        const int status = toroni_bus_retained(handle_.get(), topic.c_str(), &taken);
        if (status == TORONI_NO_MESSAGE) return std::optional<retained_message>();
        if (status != TORONI_OK) return detail::last_failure(status);
        const detail::handle<toroni_values> owner(taken);
        return std::optional(retained_message(*toroni_values_at(taken, 0)));
    }

    // Returns the values of all topics that match a pattern, in the order of the bus. One that could not be read is an
    // error in its place.
    std::vector<result<retained_message>> retained_matching(const std::string &pattern) const {
        return retained_matching(pattern, std::nothrow).value();
    }
    result<std::vector<result<retained_message>>> retained_matching(const std::string &pattern,
                                                                    std::nothrow_t) const {
        toroni_values *taken = nullptr;
        const int status = toroni_bus_retained_matching(handle_.get(), pattern.c_str(), &taken);
        if (status != TORONI_OK) return detail::last_failure(status);
        const detail::handle<toroni_values> owner(taken);
        std::vector<result<retained_message>> all;
        for (std::size_t i = 0; i < toroni_values_count(taken); ++i) {
            const toroni_value &one = *toroni_values_at(taken, i);
            if (one.status == TORONI_OK) {
                all.push_back(retained_message(one));
                continue;
            }
            failure why{static_cast<toroni_status>(one.status), one.problem, {0, 0}, {}, {}};
            if (one.status == TORONI_VALUE_MISSING)
                why.missing = missing_value{one.topic, one.sequence, one.missing_length};
            all.push_back(std::move(why));
        }
        return all;
    }

    // Reports whether this is the first handle of a bus on a disk since the machine booted, and what the bus kept.
    toroni_reopened reopened() const { return reopened(std::nothrow).value(); }
    result<toroni_reopened> reopened(std::nothrow_t) const {
        toroni_reopened found{};
        const int status = toroni_bus_reopened(handle_.get(), &found);
        if (status != TORONI_OK) return detail::last_failure(status);
        return found;
    }

    // Returns the handle for the C functions. This object still owns it.
    toroni_bus *get() const noexcept { return handle_.get(); }

private:
    explicit bus(toroni_bus *handle) : handle_(handle) {}
    static std::string_view text(const char *text) { return text ? text : ""; }
    detail::handle<toroni_bus> handle_;
};

// ---- publishing -----------------------------------------------------------------------------------------

namespace detail {

// Returns whether a call has ended because it was not to wait, or not any longer.
inline bool gave_up(int status) {
    return status == TORONI_FULL || status == TORONI_BUSY || status == TORONI_TIMEOUT;
}

inline result<bool> yes_unless(int status) {
    if (gave_up(status)) return false;
    if (status != TORONI_OK) return last_failure(status);
    return true;
}

inline result<std::uint64_t> sequence_of(int status, std::uint64_t sequence) {
    if (status != TORONI_OK) return last_failure(status);
    return sequence;
}

inline result<std::optional<std::uint64_t>> sequence_unless(int status, std::uint64_t sequence) {
    if (gave_up(status)) return std::optional<std::uint64_t>();
    if (status != TORONI_OK) return last_failure(status);
    return std::optional<std::uint64_t>(sequence);
}

template <typename Messages> std::vector<toroni_bytes> gathered(const Messages &messages) {
    std::vector<toroni_bytes> all;
    all.reserve(std::size(messages));
    for (const auto &message : messages) {
        const bytes one(message);
        all.push_back({one.data(), one.size()});
    }
    return all;
}

// Calls `publish(function, context, &sequence)` with a function that lets `fill` write the message, or give it up.
// Returns the sequence, if the message was published.
template <typename Fill, typename Publish>
std::optional<std::uint64_t> in_place(Fill &fill, const Publish &publish) {
    using fill_type = Fill;
    struct call {
        fill_type &fill;
        std::exception_ptr thrown;
    } context{fill, nullptr};
    const auto enter = [](void *data, std::size_t length, void *pointer) -> int {
        call &entered = *static_cast<call *>(pointer);
        try {
            if constexpr (std::is_void_v<decltype(entered.fill(writable_bytes(data, length)))>) {
                entered.fill(writable_bytes(data, length));
                return 0;
            } else {
                return entered.fill(writable_bytes(data, length)) ? 0 : 1;
            }
        } catch (...) {
            entered.thrown = std::current_exception();
            return 1;
        }
    };
    std::uint64_t sequence = 0;
    const int status = publish(enter, &context, &sequence);
    if (context.thrown) std::rethrow_exception(context.thrown);
    if (status == TORONI_ABORTED) return std::nullopt;
    return sequence_unless(status, sequence).value();
}

} // namespace detail

// How long a call that publishes may wait. Without a limit, it waits as the policy says.
class limit {
public:
    limit() = default;
    // At most this long, for publishers and subscribers together. With 0, the call does not wait.
    template <typename Rep, typename Period>
    limit(std::chrono::duration<Rep, Period> time) : ns_(detail::ns(time)) {}
    // Returns the timeout for the C functions.
    std::uint64_t ns() const noexcept { return ns_; }

private:
    std::uint64_t ns_ = TORONI_FOREVER;
};

// An error that ended a burst, or a call of inlet::publish. The messages before it stay published.
class burst_error : public error {
public:
    burst_error(const failure &why, std::size_t published)
        : error(why.status, why.text), published_(published) {}
    // Returns the number of messages that were published.
    std::size_t published() const noexcept { return published_; }

private:
    std::size_t published_;
};

// Options of a publisher: toroni_publisher_options.
struct publisher_options {
    toroni::policy policy;
    bool to_descendants = false;
    bool retained = false; // whether it declares the topic retained
};

namespace detail {

inline toroni_publisher_options given(const publisher_options &options) {
    toroni_publisher_options given = TORONI_PUBLISHER_OPTIONS_INIT;
    given.policy = options.policy;
    given.to_descendants = options.to_descendants;
    given.retained = options.retained;
    return given;
}

} // namespace detail

// Publishes on one topic. Any number of threads may use it at the same time.
class publisher {
public:
    // Creates a publisher on a topic, which is a path such as "plant/boiler/temperature".
    publisher(const bus &bus, const std::string &topic, const publisher_options &options = {})
        : publisher(open(bus, topic, options, std::nothrow).value()) {}

    static result<publisher> open(const bus &bus, const std::string &topic, const publisher_options &options,
                                  std::nothrow_t) {
        const toroni_publisher_options given = detail::given(options);
        toroni_publisher *handle = nullptr;
        const int status = toroni_bus_publisher(bus.get(), topic.c_str(), &given, &handle);
        if (status != TORONI_OK) return detail::last_failure(status);
        return publisher(handle);
    }

    // Publishes a message, and returns its sequence: message::sequence() for each subscriber that receives it. Waits
    // for other publishers, and for slow subscribers as the policy says.
    std::uint64_t publish(bytes message) const { return publish(message, std::nothrow).value(); }
    result<std::uint64_t> publish(bytes message, std::nothrow_t) const {
        std::uint64_t sequence = 0;
        const int status = put(message, TORONI_FOREVER, sequence);
        return detail::sequence_of(status, sequence);
    }

    // Does what publish does. Returns std::nullopt if that was not possible within the limit.
    std::optional<std::uint64_t> publish(bytes message, limit within) const {
        return publish(message, within, std::nothrow).value();
    }
    result<std::optional<std::uint64_t>> publish(bytes message, limit within, std::nothrow_t) const {
        std::uint64_t sequence = 0;
        const int status = put(message, within.ns(), sequence);
        return detail::sequence_unless(status, sequence);
    }

    // Does what publish does, if that needs no wait. Returns std::nullopt for TORONI_FULL and TORONI_BUSY.
    std::optional<std::uint64_t> try_publish(bytes message) const {
        return try_publish(message, std::nothrow).value();
    }
    result<std::optional<std::uint64_t>> try_publish(bytes message, std::nothrow_t) const {
        std::uint64_t sequence = 0;
        const int status = put(message, TORONI_NO_WAIT, sequence);
        return detail::sequence_unless(status, sequence);
    }

    // Publishes a range of messages that become visible together, and returns the sequence of the first one; the
    // sequences are consecutive. 0 if there are no messages.
    template <typename Messages> std::uint64_t publish_batch(const Messages &messages) const {
        return publish_batch(messages, std::nothrow).value();
    }
    template <typename Messages>
    result<std::uint64_t> publish_batch(const Messages &messages, std::nothrow_t) const {
        std::uint64_t first = 0;
        const int status = put_batch(messages, TORONI_FOREVER, first);
        return detail::sequence_of(status, first);
    }

    // Does what publish_batch does. Returns std::nullopt, and publishes nothing, if that was not possible within the
    // limit.
    template <typename Messages>
    std::optional<std::uint64_t> publish_batch(const Messages &messages, limit within) const {
        return publish_batch(messages, within, std::nothrow).value();
    }
    template <typename Messages>
    result<std::optional<std::uint64_t>> publish_batch(const Messages &messages, limit within,
                                                       std::nothrow_t) const {
        std::uint64_t first = 0;
        const int status = put_batch(messages, within.ns(), first);
        return detail::sequence_unless(status, first);
    }

    // Publishes messages one after the other, with one lock for as many as there is space for. Returns the number of
    // messages that were published within the limit; without a limit, that is all. Throws burst_error.
    template <typename Messages> std::size_t burst(const Messages &messages, limit within = {}) const {
        const auto all = detail::gathered(messages);
        std::size_t published = 0;
        const int status = toroni_publish_burst(get(), all.data(), all.size(), within.ns(), &published);
        if (status != TORONI_OK && !detail::gave_up(status))
            throw burst_error(detail::last_failure(status), published);
        return published;
    }

    // Publishes a message of `size` bytes that `fill(writable_bytes)` writes in place. Returns its sequence, or
    // std::nullopt if it was not published: because that was not possible within the limit, or because `fill` returned
    // false, which gives the message up. `fill` may also return nothing. An exception gives the message up, too, and
    // this function throws it again. Apart from exceptions, the rules for toroni_fill apply.
    template <typename Fill>
    std::optional<std::uint64_t> publish_in_place(std::size_t size, Fill &&fill, limit within = {}) const {
        return detail::in_place(fill, [&](toroni_fill enter, void *context, std::uint64_t *sequence) {
            return toroni_publish_in_place(get(), size, within.ns(), enter, context, sequence);
        });
    }

    // Clears the value of the topic, which the publisher must have declared retained, and returns the sequence of the
    // clear; see toroni_publisher_clear.
    std::uint64_t clear() const { return clear(std::nothrow).value(); }
    result<std::uint64_t> clear(std::nothrow_t) const {
        std::uint64_t sequence = 0;
        const int status = toroni_publisher_clear(get(), TORONI_FOREVER, &sequence);
        return detail::sequence_of(status, sequence);
    }

    // Does what clear does. Returns std::nullopt if that was not possible within the limit.
    std::optional<std::uint64_t> clear(limit within) const { return clear(within, std::nothrow).value(); }
    result<std::optional<std::uint64_t>> clear(limit within, std::nothrow_t) const {
        std::uint64_t sequence = 0;
        const int status = toroni_publisher_clear(get(), within.ns(), &sequence);
        return detail::sequence_unless(status, sequence);
    }

    // Returns the topic; "" if this object was moved from.
    std::string_view topic() const {
        const char *topic = toroni_publisher_topic(get());
        return topic ? topic : "";
    }
    // Returns the length of the longest message that can be published; 0 if this object was moved from. With `retained`,
    // less may be possible; see toroni_publisher_largest_message.
    std::uint64_t largest_message() const { return toroni_publisher_largest_message(get()); }
    // Returns the handle for the C functions. This object still owns it.
    toroni_publisher *get() const noexcept { return handle_.get(); }

private:
    explicit publisher(toroni_publisher *handle) : handle_(handle) {}

    int put(bytes message, std::uint64_t timeout_ns, std::uint64_t &sequence) const {
        return toroni_publish_within(get(), message.data(), message.size(), timeout_ns, &sequence);
    }
    template <typename Messages>
    int put_batch(const Messages &messages, std::uint64_t timeout_ns, std::uint64_t &first) const {
        const auto all = detail::gathered(messages);
        return toroni_publish_batch(get(), all.data(), all.size(), timeout_ns, &first);
    }

    detail::handle<toroni_publisher> handle_;
};

// ---- publishing exclusively -----------------------------------------------------------------------------

// A topic of an exclusive publisher. It belongs to one thread at a time.
class exclusive_topic {
public:
    // Returns the length of the longest message that can be published; 0 if this object was moved from. With `retained`,
    // less may be possible; see toroni_exclusive_topic_largest_message.
    std::uint64_t largest_message() const { return toroni_exclusive_topic_largest_message(get()); }
    // Returns the handle for the C functions. This object still owns it.
    toroni_exclusive_topic *get() const noexcept { return handle_.get(); }

private:
    friend class exclusive_publisher;
    explicit exclusive_topic(toroni_exclusive_topic *handle) : handle_(handle) {}
    detail::handle<toroni_exclusive_topic> handle_;
};

// The only publisher of a bus, for as long as it exists; see toroni_exclusive. It belongs to one thread at a time. Its
// functions do what those of publisher do, on one of its topics. Other publishers throw exclusive_error meanwhile.
class exclusive_publisher {
public:
    // Waits for other publishers, and for another exclusive publisher. Throws exclusive_error at once if this `bus`
    // object has an exclusive publisher.
    explicit exclusive_publisher(const bus &bus) : exclusive_publisher(open(bus, std::nothrow).value()) {}

    static result<exclusive_publisher> open(const bus &bus, std::nothrow_t) {
        toroni_exclusive *handle = nullptr;
        const int status = toroni_exclusive_open(bus.get(), TORONI_FOREVER, &handle);
        if (status != TORONI_OK) return detail::last_failure(status);
        return exclusive_publisher(handle);
    }

    // Waits for at most `limit`, and not at all if that is 0. Returns std::nullopt if another publisher was publishing
    // all that time, and throws exclusive_error if there is another exclusive publisher.
    template <typename Duration>
    static std::optional<exclusive_publisher> open_for(const bus &bus, Duration limit) {
        return open_for(bus, limit, std::nothrow).value();
    }
    template <typename Duration>
    static result<std::optional<exclusive_publisher>> open_for(const bus &bus, Duration limit, std::nothrow_t) {
        toroni_exclusive *handle = nullptr;
        const int status = toroni_exclusive_open(bus.get(), detail::ns(limit), &handle);
        if (status == TORONI_TIMEOUT) return std::optional<exclusive_publisher>();
        if (status != TORONI_OK) return detail::last_failure(status);
        return std::optional<exclusive_publisher>(exclusive_publisher(handle));
    }

    // See toroni_exclusive_set_always_fenced.
    void set_always_fenced(bool always) const {
        const int status = toroni_exclusive_set_always_fenced(get(), always ? 1 : 0);
        if (status != TORONI_OK) detail::last_failure(status).raise();
    }

    // Creates a topic to publish on, which is a path such as "plant/boiler/temperature". It can outlive this object.
    exclusive_topic topic(const std::string &topic, const publisher_options &options = {}) const {
        return this->topic(topic, options, std::nothrow).value();
    }
    result<exclusive_topic> topic(const std::string &topic, const publisher_options &options, std::nothrow_t) const {
        const toroni_publisher_options given = detail::given(options);
        toroni_exclusive_topic *handle = nullptr;
        const int status = toroni_exclusive_open_topic(get(), topic.c_str(), &given, &handle);
        if (status != TORONI_OK) return detail::last_failure(status);
        return exclusive_topic(handle);
    }

    std::uint64_t publish(const exclusive_topic &topic, bytes message) const {
        return publish(topic, message, std::nothrow).value();
    }
    result<std::uint64_t> publish(const exclusive_topic &topic, bytes message, std::nothrow_t) const {
        std::uint64_t sequence = 0;
        const int status = put(topic, message, TORONI_FOREVER, sequence);
        return detail::sequence_of(status, sequence);
    }

    std::optional<std::uint64_t> publish(const exclusive_topic &topic, bytes message, limit within) const {
        return publish(topic, message, within, std::nothrow).value();
    }
    result<std::optional<std::uint64_t>> publish(const exclusive_topic &topic, bytes message, limit within,
                                                 std::nothrow_t) const {
        std::uint64_t sequence = 0;
        const int status = put(topic, message, within.ns(), sequence);
        return detail::sequence_unless(status, sequence);
    }

    template <typename Messages>
    std::uint64_t publish_batch(const exclusive_topic &topic, const Messages &messages) const {
        return publish_batch(topic, messages, std::nothrow).value();
    }
    template <typename Messages>
    result<std::uint64_t> publish_batch(const exclusive_topic &topic, const Messages &messages,
                                        std::nothrow_t) const {
        std::uint64_t first = 0;
        const int status = put_batch(topic, messages, TORONI_FOREVER, first);
        return detail::sequence_of(status, first);
    }

    template <typename Messages>
    std::optional<std::uint64_t> publish_batch(const exclusive_topic &topic, const Messages &messages,
                                               limit within) const {
        return publish_batch(topic, messages, within, std::nothrow).value();
    }
    template <typename Messages>
    result<std::optional<std::uint64_t>> publish_batch(const exclusive_topic &topic, const Messages &messages,
                                                       limit within, std::nothrow_t) const {
        std::uint64_t first = 0;
        const int status = put_batch(topic, messages, within.ns(), first);
        return detail::sequence_unless(status, first);
    }

    // Throws burst_error.
    template <typename Messages>
    std::size_t burst(const exclusive_topic &topic, const Messages &messages, limit within = {}) const {
        const auto all = detail::gathered(messages);
        std::size_t published = 0;
        const int status =
            toroni_exclusive_publish_burst(get(), topic.get(), all.data(), all.size(), within.ns(), &published);
        if (status != TORONI_OK && !detail::gave_up(status))
            throw burst_error(detail::last_failure(status), published);
        return published;
    }

    template <typename Fill>
    std::optional<std::uint64_t> publish_in_place(const exclusive_topic &topic, std::size_t size, Fill &&fill,
                                                  limit within = {}) const {
        return detail::in_place(fill, [&](toroni_fill enter, void *context, std::uint64_t *sequence) {
            return toroni_exclusive_publish_in_place(get(), topic.get(), size, within.ns(), enter, context, sequence);
        });
    }

    std::uint64_t clear(const exclusive_topic &topic) const { return clear(topic, std::nothrow).value(); }
    result<std::uint64_t> clear(const exclusive_topic &topic, std::nothrow_t) const {
        std::uint64_t sequence = 0;
        const int status = toroni_exclusive_clear(get(), topic.get(), TORONI_FOREVER, &sequence);
        return detail::sequence_of(status, sequence);
    }

    std::optional<std::uint64_t> clear(const exclusive_topic &topic, limit within) const {
        return clear(topic, within, std::nothrow).value();
    }
    result<std::optional<std::uint64_t>> clear(const exclusive_topic &topic, limit within, std::nothrow_t) const {
        std::uint64_t sequence = 0;
        const int status = toroni_exclusive_clear(get(), topic.get(), within.ns(), &sequence);
        return detail::sequence_unless(status, sequence);
    }

    // Returns the handle for the C functions. This object still owns it.
    toroni_exclusive *get() const noexcept { return handle_.get(); }

private:
    explicit exclusive_publisher(toroni_exclusive *handle) : handle_(handle) {}

    int put(const exclusive_topic &topic, bytes message, std::uint64_t timeout_ns, std::uint64_t &sequence) const {
        return toroni_exclusive_publish(get(), topic.get(), message.data(), message.size(), timeout_ns, &sequence);
    }
    template <typename Messages>
    int put_batch(const exclusive_topic &topic, const Messages &messages, std::uint64_t timeout_ns,
                  std::uint64_t &first) const {
        const auto all = detail::gathered(messages);
        return toroni_exclusive_publish_batch(get(), topic.get(), all.data(), all.size(), timeout_ns, &first);
    }

    detail::handle<toroni_exclusive> handle_;
};

// ---- messages from elsewhere ----------------------------------------------------------------------------

// How far a stream has arrived.
struct arrived {
    std::uint64_t next; // the lowest number that has not arrived, neither as a message nor as a loss
    bool taken_over;    // whether another inlet brought the stream until now
};

// A topic of an inlet. Any number of threads may use it at the same time.
class inlet_topic {
public:
    // Returns the handle for the C functions. This object still owns it.
    toroni_inlet_topic *get() const noexcept { return handle_.get(); }

private:
    friend class inlet;
    explicit inlet_topic(toroni_inlet_topic *handle) : handle_(handle) {}
    detail::handle<toroni_inlet_topic> handle_;
};

// A message for inlet::publish: toroni_inlet_entry. It does not own its topic and its bytes.
struct entry {
    entry(const inlet_topic &on, bytes payload) : topic(&on), parts{payload} {}
    // A message of several parts, which are written one after the other.
    entry(const inlet_topic &on, std::vector<bytes> its_parts) : topic(&on), parts(std::move(its_parts)) {}

    const inlet_topic *topic;
    std::vector<bytes> parts;
    bool to_descendants = false; // whether it is also published to everything below its topic
    std::optional<std::chrono::system_clock::time_point> timestamp; // when it was first published
    std::optional<toroni::origin> origin;   // where it was first published; without it, it is never a duplicate
    std::optional<std::uint64_t> open_from; // the lowest number that is missing, if they arrive in any order
    std::optional<std::uint64_t> number;    // its place in an order over several buses
};

// Options of an inlet: toroni_inlet_options.
struct inlet_options {
    toroni::policy policy;
};

// Publishes messages that were first published elsewhere, each of them once; see toroni_inlet. Any number of threads
// may use it at the same time.
class inlet {
public:
    explicit inlet(const bus &bus, const inlet_options &options = {})
        : inlet(open(bus, options, std::nothrow).value()) {}

    static result<inlet> open(const bus &bus, const inlet_options &options, std::nothrow_t) {
        toroni_inlet_options given = TORONI_INLET_OPTIONS_INIT;
        given.policy = options.policy;
        toroni_inlet *handle = nullptr;
        const int status = toroni_inlet_open(bus.get(), &given, &handle);
        if (status != TORONI_OK) return detail::last_failure(status);
        return inlet(handle);
    }

    // Creates a topic to publish on, which is a path such as "plant/boiler/temperature".
    inlet_topic topic(const std::string &topic) const { return this->topic(topic, std::nothrow).value(); }
    result<inlet_topic> topic(const std::string &topic, std::nothrow_t) const {
        toroni_inlet_topic *handle = nullptr;
        const int status = toroni_inlet_open_topic(get(), topic.c_str(), &handle);
        if (status != TORONI_OK) return detail::last_failure(status);
        return inlet_topic(handle);
    }

    // Declares a topic retained; see toroni_inlet_retain.
    void retain(inlet_topic &topic) const { retain(topic, std::nothrow).value(); }
    result<void> retain(inlet_topic &topic, std::nothrow_t) const {
        return detail::done(toroni_inlet_retain(get(), topic.get()));
    }

    // Claims a stream for this inlet, and returns how far it has arrived. Throws taken_error if another inlet brings
    // the series.
    arrived claim(std::uint32_t source, std::uint32_t series, std::uint16_t stream) const {
        return claim(source, series, stream, std::nothrow).value();
    }
    result<arrived> claim(std::uint32_t source, std::uint32_t series, std::uint16_t stream, std::nothrow_t) const {
        toroni_arrived found{};
        const int status = toroni_inlet_claim(get(), source, series, stream, TORONI_FOREVER, &found);
        if (status != TORONI_OK) return detail::last_failure(status);
        return arrived{found.next, found.taken_over != 0};
    }

    // Does what claim does. Returns std::nullopt if other publishers did not let it in within the limit.
    std::optional<arrived> claim(std::uint32_t source, std::uint32_t series, std::uint16_t stream,
                                 limit within) const {
        return claim(source, series, stream, within, std::nothrow).value();
    }
    result<std::optional<arrived>> claim(std::uint32_t source, std::uint32_t series, std::uint16_t stream,
                                         limit within, std::nothrow_t) const {
        toroni_arrived found{};
        const int status = toroni_inlet_claim(get(), source, series, stream, within.ns(), &found);
        if (detail::gave_up(status)) return std::optional<arrived>();
        if (status != TORONI_OK) return detail::last_failure(status);
        return std::optional<arrived>(arrived{found.next, found.taken_over != 0});
    }

    // Publishes messages one after the other, on any topics, and drops those that have arrived before. Returns the
    // number of messages that were published, or dropped, within the limit; without a limit, that is all. Throws
    // burst_error.
    std::size_t publish(const std::vector<entry> &entries, limit within = {}) const {
        std::size_t published = 0;
        const int status = put(entries, within.ns(), published);
        if (status != TORONI_OK && !detail::gave_up(status))
            throw burst_error(detail::last_failure(status), published);
        return published;
    }

    // Reports to subscribers that messages were lost on the way here. `open_from` is what entry::open_from is for
    // messages. Returns false if that was not possible within the limit.
    bool publish_lost(const lost_messages &lost, std::optional<std::uint64_t> open_from = {},
                      limit within = {}) const {
        return publish_lost(lost, open_from, within, std::nothrow).value();
    }
    result<bool> publish_lost(const lost_messages &lost, std::optional<std::uint64_t> open_from, limit within,
                              std::nothrow_t) const {
        return detail::yes_unless(put_lost(lost, open_from, within.ns()));
    }

    // States how far a stream has arrived, without publishing anything. Returns false if other publishers did not let
    // it in within the limit.
    bool advance(const origin &next, limit within = {}) const { return advance(next, within, std::nothrow).value(); }
    result<bool> advance(const origin &next, limit within, std::nothrow_t) const {
        const toroni_origin given = detail::given(next);
        return detail::yes_unless(toroni_inlet_advance(get(), &given, within.ns()));
    }

    // Returns how many messages and losses it has dropped because they had arrived before; 0 if this object was moved
    // from.
    std::uint64_t duplicates() const { return toroni_inlet_duplicates(get()); }
    // Returns the handle for the C functions. This object still owns it.
    toroni_inlet *get() const noexcept { return handle_.get(); }

private:
    explicit inlet(toroni_inlet *handle) : handle_(handle) {}

    int put(const std::vector<entry> &entries, std::uint64_t timeout_ns, std::size_t &published) const {
        std::size_t count = 0;
        for (const entry &one : entries) count += one.parts.size();
        std::vector<toroni_bytes> parts;
        // The entries point into it.
        parts.reserve(count);
        std::vector<toroni_inlet_entry> all;
        all.reserve(entries.size());
        for (const entry &one : entries) {
            toroni_inlet_entry given{};
            given.topic = one.topic->get();
            given.parts = parts.data() + parts.size();
            given.part_count = one.parts.size();
            for (const bytes &part : one.parts) parts.push_back({part.data(), part.size()});
            if (one.to_descendants) given.flags |= TORONI_ENTRY_TO_DESCENDANTS;
            if (one.timestamp) {
                given.flags |= TORONI_ENTRY_HAS_TIMESTAMP;
                given.timestamp_ns = detail::since_1970(*one.timestamp);
            }
            if (one.origin) {
                given.flags |= TORONI_ENTRY_HAS_ORIGIN;
                given.origin = detail::given(*one.origin);
            }
            if (one.open_from) {
                given.flags |= TORONI_ENTRY_HAS_OPEN_FROM;
                given.open_from = *one.open_from;
            }
            if (one.number) {
                given.flags |= TORONI_ENTRY_HAS_NUMBER;
                given.number = *one.number;
            }
            all.push_back(given);
        }
        return toroni_inlet_publish(get(), all.data(), all.size(), timeout_ns, &published);
    }

    int put_lost(const lost_messages &lost, const std::optional<std::uint64_t> &open_from,
                 std::uint64_t timeout_ns) const {
        std::vector<const char *> scope;
        for (const std::string &pattern : lost.scope) scope.push_back(pattern.c_str());
        const toroni_lost given{detail::given(lost.from), lost.until,   lost.messages, lost.bound,
                                lost.reason,              scope.data(), scope.size()};
        return toroni_inlet_publish_lost(get(), &given, open_from ? &*open_from : nullptr, timeout_ns);
    }

    detail::handle<toroni_inlet> handle_;
};

// ---- receiving ------------------------------------------------------------------------------------------

// A received message: toroni_message. It points to memory of its subscriber, and is valid until the next call on that,
// or until its handler returns.
class message {
public:
    explicit message(const toroni_message &content) : content_(content) {}

    std::string_view topic() const noexcept { return {content_.topic, content_.topic_length}; }
    bytes payload() const noexcept { return {content_.payload, content_.payload_length}; }
    // Returns the payload as text, whatever it contains.
    std::string_view text() const noexcept { return payload().text(); }
    std::uint64_t sequence() const noexcept { return content_.sequence; }
    std::uint64_t position() const noexcept { return content_.position; }
    std::uint64_t next_position() const noexcept { return content_.next_position; }
    bool to_descendants() const noexcept { return content_.flags & TORONI_MESSAGE_TO_DESCENDANTS; }
    // Returns whether it is the value of its topic, and older than what the subscriber receives otherwise.
    bool is_retained() const noexcept { return content_.flags & TORONI_MESSAGE_RETAINED; }
    // Returns whether it is no message, but says that the value of its topic was cleared.
    bool is_cleared() const noexcept { return content_.flags & TORONI_MESSAGE_CLEARED; }
    // Returns when the message was published, if its publisher uses timestamps.
    std::optional<std::chrono::system_clock::time_point> timestamp() const {
        if (!(content_.flags & TORONI_MESSAGE_HAS_TIMESTAMP)) return std::nullopt;
        return detail::time(content_.timestamp_ns);
    }
    // Returns where the message was first published, if it came from elsewhere.
    std::optional<toroni::origin> origin() const {
        if (!(content_.flags & TORONI_MESSAGE_HAS_ORIGIN)) return std::nullopt;
        return detail::received(content_.origin);
    }
    // Returns its place in an order over several buses, if it has one.
    std::optional<std::uint64_t> number() const {
        if (!(content_.flags & TORONI_MESSAGE_HAS_NUMBER)) return std::nullopt;
        return content_.number;
    }

private:
    toroni_message content_;
};

// Options of a subscriber: toroni_subscriber_options.
struct subscriber_options {
    std::vector<std::string> patterns;
    int start = TORONI_START_LATEST;
    int wait = TORONI_WAIT_BACKOFF;
    std::uint64_t position = 0; // for TORONI_START_POSITION
    std::uint64_t sequence = 0; // for TORONI_START_SEQUENCE
    bool gating = true;         // whether publishers wait for this subscriber
    bool local_only = false;    // whether it passes over messages with an origin, and losses from elsewhere
    std::optional<std::string> name;
    int after_loss = TORONI_CONTINUE_OLDEST; // where it continues after lapped
    // It passes over messages whose timestamp is longer ago when it receives them. Without it: any age.
    std::optional<std::chrono::nanoseconds> max_age = {};
    bool retained = false; // whether it first receives the values of retained topics
};

namespace detail {

// The base of iterators over messages. `next()` of the derived class stores the next message in `current_`, or sets
// `subscriber_` to null at the end.
template <typename Iterator, typename Subscriber> class message_iterator {
public:
    using iterator_category = std::input_iterator_tag;
    using value_type = message;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = message;

    message operator*() const { return message(current_); }
    Iterator &operator++() {
        auto &self = static_cast<Iterator &>(*this);
        self.next();
        return self;
    }
    void operator++(int) { ++*this; }
    bool operator==(const message_iterator &other) const { return subscriber_ == other.subscriber_; }
    bool operator!=(const message_iterator &other) const { return !(*this == other); }

protected:
    // The end iterator.
    message_iterator() = default;
    message_iterator(Subscriber *subscriber, const toroni_message &first)
        : subscriber_(subscriber), current_(first) {}
    Subscriber *subscriber_ = nullptr;
    toroni_message current_{};
};

} // namespace detail

class subscriber;

// A run of messages in place: their payloads are in the shared memory of the bus. Do not rely on anything read from a
// payload until validate() has returned; see toroni_receive_in_place. The next call on the subscriber, except slot() and
// is_current(), ends the run; afterwards it can neither be validated nor iterated (TORONI_INVALID_ARGUMENT). It can be
// iterated once. It must not outlive the subscriber.
class run {
public:
    class iterator : public detail::message_iterator<iterator, toroni_subscriber> {
    public:
        iterator() = default;

    private:
        friend class run;
        friend message_iterator;
        iterator(toroni_subscriber *subscriber, const toroni_message &first, std::uint64_t number)
            : message_iterator(subscriber, first), number_(number) {}
        void next() {
            if (is_over(subscriber_, number_)) over().raise();
            const int status = toroni_next_in_place(subscriber_, &current_);
            if (status == TORONI_NO_MESSAGE) subscriber_ = nullptr;
            else if (status != TORONI_OK) detail::last_failure(status).raise();
        }
        std::uint64_t number_ = 0;
    };

    iterator begin() const { return {subscriber_, first_, number_}; }
    iterator end() const { return {nullptr, first_, number_}; }
    // Returns the first message.
    message front() const { return message(first_); }

    // Checks everything that was read so far. Throws lapped if it may have been overwritten.
    void validate() const { validate(std::nothrow).value(); }
    result<void> validate(std::nothrow_t) const {
        if (is_over(subscriber_, number_)) return over();
        const int status = toroni_validate(subscriber_);
        if (status == TORONI_OK) return {};
        toroni::loss lost{0, 0};
        failure why = detail::last_failure(status);
        if (status == TORONI_LAPPED && toroni_subscriber_last_loss(subscriber_, &lost) == TORONI_OK)
            why.loss = lost;
        return why;
    }

private:
    friend class subscriber;
    run(toroni_subscriber *subscriber, const toroni_message &first)
        : subscriber_(subscriber), first_(first), number_(toroni_subscriber_run_number(subscriber)) {}
    // The C functions act on the current run of the subscriber, which may be a later one.
    static bool is_over(toroni_subscriber *subscriber, std::uint64_t number) {
        return toroni_subscriber_run_number(subscriber) != number;
    }
    static failure over() {
        return {TORONI_INVALID_ARGUMENT, "the run is over: another call on its subscriber has ended it", {0, 0}, {}, {}};
    }
    toroni_subscriber *subscriber_;
    toroni_message first_;
    std::uint64_t number_;
};

// Receives the messages that match its patterns. It belongs to one thread at a time.
//
// It is a range of messages (in C++20, a std::ranges::input_range). The range waits for each message, and ends when
// the subscriber is interrupted or the bus is removed. It throws all other errors, including lapped, lost and
// value_missing; messages(on_loss, on_lost, on_missing) returns a range that calls functions instead of throwing these.
class subscriber {
public:
    // Subscribes to one pattern, or with options.
    subscriber(const bus &bus, const std::string &pattern)
        : subscriber(bus, subscriber_options{
                              {pattern}, TORONI_START_LATEST, TORONI_WAIT_BACKOFF, 0, 0, true, false, {},
                              TORONI_CONTINUE_OLDEST, {}, false}) {}
    subscriber(const bus &bus, const subscriber_options &options)
        : subscriber(open(bus, options, std::nothrow).value()) {}

    static result<subscriber> open(const bus &bus, const subscriber_options &options, std::nothrow_t) {
        std::vector<const char *> patterns;
        for (const auto &pattern : options.patterns) patterns.push_back(pattern.c_str());
        toroni_subscriber_options given = TORONI_SUBSCRIBER_OPTIONS_INIT;
        given.patterns = patterns.data();
        given.pattern_count = patterns.size();
        given.start = options.start;
        given.wait = options.wait;
        given.position = options.position;
        given.sequence = options.sequence;
        given.not_gating = !options.gating;
        given.local_only = options.local_only;
        given.name = detail::or_null(options.name);
        given.after_loss = options.after_loss;
        given.retained = options.retained;
        // The C library takes 0 for any age.
        if (options.max_age) given.max_age_ns = std::max<std::int64_t>(options.max_age->count(), 1);
        toroni_subscriber *handle = nullptr;
        const int status = toroni_bus_subscribe_with(bus.get(), &given, &handle);
        if (status != TORONI_OK) return detail::last_failure(status);
        return subscriber(handle);
    }

    // Adds a pattern, which begins without the values of retained topics.
    void add_pattern(const std::string &pattern) { add_pattern(pattern, std::nothrow).value(); }
    result<void> add_pattern(const std::string &pattern, std::nothrow_t) {
        return detail::done(toroni_subscriber_add_pattern(get(), pattern.c_str()));
    }

    // Waits for the next message and returns it. Throws lapped or lost if messages are missing, value_missing if a value
    // is, and interrupted after interrupt().
    message receive() {
        toroni_message content;
        if (const int status = toroni_receive(get(), &content); status != TORONI_OK) why(status).raise();
        return message(content);
    }
    result<message> receive(std::nothrow_t) {
        toroni_message content;
        if (const int status = toroni_receive(get(), &content); status != TORONI_OK) return why(status);
        return message(content);
    }

    // Returns the next message, if one is available.
    std::optional<message> try_receive() {
        toroni_message content;
        const int status = toroni_try_receive(get(), &content);
        if (status == TORONI_OK) return message(content);
        if (status != TORONI_NO_MESSAGE) why(status).raise();
        return std::nullopt;
    }
    result<std::optional<message>> try_receive(std::nothrow_t) {
        toroni_message content;
        return maybe(toroni_try_receive(get(), &content), content);
    }

    // Returns the next message, if one arrives within `limit`.
    template <typename Duration> std::optional<message> receive_for(Duration limit) {
        return receive_for(limit, std::nothrow).value();
    }
    template <typename Duration>
    result<std::optional<message>> receive_for(Duration limit, std::nothrow_t) {
        toroni_message content;
        return maybe(toroni_receive_timeout(get(), detail::ns(limit), &content), content);
    }

    // Waits for the next messages and returns them as a run in place.
    run receive_in_place() { return receive_in_place(std::nothrow).value(); }
    result<run> receive_in_place(std::nothrow_t) {
        auto received = in_place(TORONI_FOREVER);
        if (!received) return received.error();
        return **received;
    }
    // Returns the next messages as a run in place, if any are available.
    std::optional<run> try_receive_in_place() { return in_place(0).value(); }
    result<std::optional<run>> try_receive_in_place(std::nothrow_t) { return in_place(0); }
    // Returns the next messages as a run in place, if one arrives within `limit`.
    template <typename Duration> std::optional<run> receive_in_place_for(Duration limit) {
        return in_place(detail::ns(limit)).value();
    }
    template <typename Duration> result<std::optional<run>> receive_in_place_for(Duration limit, std::nothrow_t) {
        return in_place(detail::ns(limit));
    }

private:
    // What a range calls instead of throwing lapped, lost and value_missing. They may be empty.
    struct loss_handlers {
        std::function<void(loss)> on_loss;
        std::function<void(const lost_messages &)> on_lost;
        std::function<void(const missing_value &)> on_missing;
    };

public:
    class iterator : public detail::message_iterator<iterator, subscriber> {
    public:
        iterator() = default;

    private:
        friend class subscriber;
        friend message_iterator;
        iterator(subscriber *subscriber, const loss_handlers *handlers)
            : message_iterator(subscriber, toroni_message()), handlers_(handlers) {
            if (subscriber_) next();
        }
        void next() {
            for (;;) {
                const int status = toroni_receive(subscriber_->get(), &current_);
                if (status == TORONI_OK) return;
                if (status == TORONI_INTERRUPTED || status == TORONI_UNLINKED) {
                    subscriber_ = nullptr;
                    return;
                }
                const failure failed = subscriber_->why(status);
                if (status == TORONI_LAPPED && handlers_ && handlers_->on_loss) handlers_->on_loss(failed.loss);
                else if (failed.lost_on_the_way && handlers_ && handlers_->on_lost)
                    handlers_->on_lost(*failed.lost_on_the_way);
                else if (failed.missing && handlers_ && handlers_->on_missing) handlers_->on_missing(*failed.missing);
                else failed.raise();
            }
        }
        const loss_handlers *handlers_ = nullptr;
    };

    // The range that messages(on_loss, on_lost, on_missing) returns.
    class stream {
    public:
        iterator begin() { return {subscriber_, &handlers_}; }
        iterator end() { return {nullptr, nullptr}; }

    private:
        friend class subscriber;
        stream(subscriber *subscriber, loss_handlers handlers)
            : subscriber_(subscriber), handlers_(std::move(handlers)) {}
        subscriber *subscriber_;
        loss_handlers handlers_;
    };

    iterator begin() { return {this, nullptr}; }
    iterator end() { return {nullptr, nullptr}; }
    // Returns a range of messages that calls `on_loss` instead of throwing lapped, and then continues. If `on_lost` is
    // given, it calls that instead of throwing lost; and `on_missing` instead of throwing value_missing.
    stream messages(std::function<void(loss)> on_loss, std::function<void(const lost_messages &)> on_lost = {},
                    std::function<void(const missing_value &)> on_missing = {}) {
        return {this, {std::move(on_loss), std::move(on_lost), std::move(on_missing)}};
    }

    // Ends the call that waits for a message; see toroni_subscriber_interrupt. Any thread and any signal handler may
    // call it, as long as this object exists and is not moved.
    void interrupt() const noexcept { toroni_subscriber_interrupt(handle_.get()); }

    // Returns a descriptor for event loops; see toroni_subscriber_fd. It belongs to the subscriber.
    int fd() { return fd(std::nothrow).value(); }
    result<int> fd(std::nothrow_t) {
        int fd = -1;
        const int status = toroni_subscriber_fd(get(), &fd);
        if (status != TORONI_OK) return detail::last_failure(status);
        return fd;
    }
    // Return the position of the next message, and the bytes of the stream that were not read yet.
    std::uint64_t position() const { return toroni_subscriber_position(get()); }
    std::uint64_t lag_bytes() const { return toroni_subscriber_lag_bytes(get()); }

    // Makes publishers keep the messages from `sequence` on, although this subscriber reads on; see
    // toroni_subscriber_hold.
    void hold(std::uint64_t sequence) { hold(sequence, std::nothrow).value(); }
    result<void> hold(std::uint64_t sequence, std::nothrow_t) {
        return detail::done(toroni_subscriber_hold(get(), sequence));
    }
    // Ends the hold.
    void release_hold() { release_hold(std::nothrow).value(); }
    result<void> release_hold(std::nothrow_t) { return detail::done(toroni_subscriber_release_hold(get())); }
    // Returns the sequence of the hold, unless there is none or a message of it was overwritten.
    std::optional<std::uint64_t> held() const {
        const std::uint64_t sequence = toroni_subscriber_held(get());
        return sequence == TORONI_NO_SEQUENCE ? std::nullopt : std::optional<std::uint64_t>(sequence);
    }

    // Returns whether it has received all values that it asked for (subscriber_options::retained), so that what it
    // receives next is new. False if this object was moved from.
    bool is_current() const { return toroni_subscriber_is_current(get()) != 0; }
    // Returns the number of the slot; TORONI_NO_SLOT if this object was moved from.
    std::uint32_t slot() const { return toroni_subscriber_slot(get()); }
    // Returns what happened to the subscriber so far.
    toroni_subscriber_stats stats() const { return stats(std::nothrow).value(); }
    result<toroni_subscriber_stats> stats(std::nothrow_t) const {
        toroni_subscriber_stats seen{};
        const int status = toroni_subscriber_get_stats(get(), &seen);
        if (status != TORONI_OK) return detail::last_failure(status);
        return seen;
    }
    // Returns the handle for the C functions. This object still owns it.
    toroni_subscriber *get() const noexcept { return handle_.get(); }

private:
    explicit subscriber(toroni_subscriber *handle) : handle_(handle) {}

    failure why(int status) const {
        failure failed = detail::last_failure(status);
        if (status == TORONI_LAPPED) toroni_subscriber_last_loss(get(), &failed.loss);
        toroni_lost last;
        if (status == TORONI_LOST && toroni_subscriber_last_lost(get(), &last) == TORONI_OK)
            failed.lost_on_the_way = detail::received(last);
        return failed;
    }
    result<std::optional<message>> maybe(int status, const toroni_message &content) const {
        if (status == TORONI_OK) return std::optional<message>(message(content));
        if (status == TORONI_NO_MESSAGE) return std::optional<message>();
        return why(status);
    }
    result<std::optional<run>> in_place(std::uint64_t timeout_ns) {
        toroni_message first;
        const int status = toroni_receive_in_place(get(), timeout_ns, &first);
        if (status == TORONI_OK) return std::optional<run>(run(get(), first));
        if (status == TORONI_NO_MESSAGE) return std::optional<run>();
        return why(status);
    }

    detail::handle<toroni_subscriber> handle_;
};

// ---- a router -------------------------------------------------------------------------------------------

// One subscriber that calls handlers. It belongs to one thread at a time, which runs the handlers. A handler must not
// destroy its router or assign to it. All other calls on the router within a handler, except interrupt(), fail with
// TORONI_REENTRANT.
//
// If a handler throws, the call that ran it throws the exception again: run() and run_once() at once, poll() after it
// has handled all messages that are available. If that call also found that messages are missing, and there is no
// handler for that, the next call throws lapped or lost and handles nothing.
class router {
public:
    // Creates a router without handlers.
    explicit router(const bus &bus) : state_(std::make_unique<state>()) {
        toroni_router *handle = nullptr;
        detail::done(toroni_bus_router(bus.get(), &handle)).value();
        state_->handle.reset(handle);
    }

    // Adds a handler for the messages that match a pattern.
    router &on(const std::string &pattern, std::function<void(const message &)> call) {
        check();
        auto added = std::make_unique<handler>(handler{state_.get(), std::move(call)});
        const auto enter = [](const toroni_message *content, void *pointer) {
            handler &entered = *static_cast<handler *>(pointer);
            entered.owner->guard([&] { entered.call(message(*content)); });
        };
        // Stored before it is registered: if there is no memory left, a registered handler must not be freed.
        state_->handlers.push_back(std::move(added));
        const int status = toroni_router_on(get(), pattern.c_str(), enter, state_->handlers.back().get());
        if (status != TORONI_OK) {
            const failure why = detail::last_failure(status);
            state_->handlers.pop_back();
            why.raise();
        }
        return *this;
    }

    // Sets a handler that is called when the router was too slow and missed messages, instead of throwing lapped.
    router &on_lapped(std::function<void(loss)> call) {
        check();
        auto set = std::make_unique<loss_handler>(loss_handler{state_.get(), std::move(call)});
        const auto enter = [](const toroni_loss *lost, void *pointer) {
            loss_handler &entered = *static_cast<loss_handler *>(pointer);
            entered.owner->guard([&] { entered.call(*lost); });
        };
        detail::done(toroni_router_on_lapped(get(), enter, set.get())).value();
        // Not earlier: the current handler may be calling this, which fails above.
        state_->on_lapped = std::move(set);
        return *this;
    }

    // Sets a handler that is called when messages from elsewhere were lost, instead of throwing lost.
    router &on_lost(std::function<void(const lost_messages &)> call) {
        check();
        auto set = std::make_unique<lost_handler>(lost_handler{state_.get(), std::move(call)});
        const auto enter = [](const toroni_lost *lost, void *pointer) {
            lost_handler &entered = *static_cast<lost_handler *>(pointer);
            entered.owner->guard([&] { entered.call(detail::received(*lost)); });
        };
        detail::done(toroni_router_on_lost(get(), enter, set.get())).value();
        state_->on_lost = std::move(set);
        return *this;
    }

    // Handles all messages that are available, and returns their number.
    std::size_t poll() {
        throw_kept();
        std::size_t handled = 0;
        finish(toroni_router_poll(get(), &handled));
        return handled;
    }
    // Waits for the next message and handles it. Returns false if none arrived within `limit`.
    template <typename Duration> bool run_once(Duration limit) {
        throw_kept();
        const int status = toroni_router_run_once(get(), detail::ns(limit));
        if (status != TORONI_NO_MESSAGE) finish(status);
        return status != TORONI_NO_MESSAGE;
    }
    // Handles messages until it is interrupted. Throws all other errors.
    void run() {
        throw_kept();
        if (state_) state_->runs = true;
        const int status = toroni_router_run(get());
        if (state_) state_->runs = false;
        finish(status == TORONI_INTERRUPTED ? static_cast<int>(TORONI_OK) : status);
    }

    // Ends run(), or another call that waits; see subscriber::interrupt. Handlers may call it.
    void interrupt() const noexcept { toroni_router_interrupt(get()); }
    // Returns a descriptor for event loops. When it is readable, call poll().
    int fd() {
        int fd = -1;
        detail::done(toroni_router_fd(get(), &fd)).value();
        return fd;
    }
    // Return what the functions of subscriber return; within a handler 0, 0 and TORONI_NO_SLOT.
    std::uint64_t position() const { return toroni_router_position(get()); }
    std::uint64_t lag_bytes() const { return toroni_router_lag_bytes(get()); }
    std::uint32_t slot() const { return toroni_router_slot(get()); }
    // Returns what happened to the subscriber so far.
    toroni_subscriber_stats stats() const {
        toroni_subscriber_stats seen{};
        detail::done(toroni_router_get_stats(get(), &seen)).value();
        return seen;
    }
    // Returns the handle for the C functions. This object still owns it.
    toroni_router *get() const noexcept { return state_ ? state_->handle.get() : nullptr; }

private:
    struct state;
    struct handler {
        state *owner;
        std::function<void(const message &)> call;
    };
    struct loss_handler {
        state *owner;
        std::function<void(loss)> call;
    };
    struct lost_handler {
        state *owner;
        std::function<void(const lost_messages &)> call;
    };
    // Its address stays the same when the router is moved.
    struct state {
        std::vector<std::unique_ptr<handler>> handlers;
        std::unique_ptr<loss_handler> on_lapped;
        std::unique_ptr<lost_handler> on_lost;
        std::exception_ptr thrown;
        // A loss that could not be thrown because `thrown` was thrown first.
        std::optional<failure> kept;
        bool runs = false;
        // Declared last, so that it is closed first. No handler is called afterwards.
        detail::handle<toroni_router> handle;

        template <typename Call> void guard(const Call &call) noexcept {
            try {
                call();
            } catch (...) {
                if (!thrown) thrown = std::current_exception();
                if (runs) toroni_router_interrupt(handle.get());
            }
        }
    };

    // Throws if the router was moved from.
    void check() const {
        if (state_) return;
        toroni_loss lost;
        detail::done(toroni_router_last_loss(nullptr, &lost)).value();
    }

    void throw_kept() {
        if (state_ && state_->kept) std::exchange(state_->kept, std::nullopt)->raise();
    }

    void finish(int status) {
        if (state_ && state_->thrown) {
            if (status == TORONI_LAPPED || status == TORONI_LOST) state_->kept = why(status);
            std::rethrow_exception(std::exchange(state_->thrown, nullptr));
        }
        if (status != TORONI_OK) why(status).raise();
    }

    failure why(int status) const {
        failure failed = detail::last_failure(status);
        if (status == TORONI_LAPPED) toroni_router_last_loss(get(), &failed.loss);
        toroni_lost last;
        if (status == TORONI_LOST && toroni_router_last_lost(get(), &last) == TORONI_OK)
            failed.lost_on_the_way = detail::received(last);
        return failed;
    }

    std::unique_ptr<state> state_;
};

// ---- topics ---------------------------------------------------------------------------------------------

// Return whether a subscriber with the pattern receives a message on the topic. For matches_descendants, the message is
// published to the topic and to everything below it.
inline result<bool> matches(const std::string &pattern, const std::string &topic, std::nothrow_t) {
    int matched = 0;
    const int status = toroni_matches(pattern.c_str(), topic.c_str(), &matched);
    if (status != TORONI_OK) return detail::last_failure(status);
    return matched != 0;
}
inline bool matches(const std::string &pattern, const std::string &topic) {
    return matches(pattern, topic, std::nothrow).value();
}
inline result<bool> matches_descendants(const std::string &pattern, const std::string &topic, std::nothrow_t) {
    int matched = 0;
    const int status = toroni_matches_descendants(pattern.c_str(), topic.c_str(), &matched);
    if (status != TORONI_OK) return detail::last_failure(status);
    return matched != 0;
}
inline bool matches_descendants(const std::string &pattern, const std::string &topic) {
    return matches_descendants(pattern, topic, std::nothrow).value();
}

// ---- buses as files -------------------------------------------------------------------------------------

// Returns the directory of buses for calls that name none: $TORONI_DIR if it is set and not empty, or else
// /dev/shm/toroni.
inline std::string default_directory() {
    const char *const found = toroni_default_directory();
    if (!found) detail::last_failure(TORONI_OTHER).raise();
    return found;
}

// A bus in a directory of buses: toroni_bus_entry.
struct bus_entry {
    std::string name;
    std::string path;
    std::optional<std::string> problem;    // why it cannot be opened
    std::optional<std::uint64_t> capacity; // std::nullopt if its header cannot be read
    std::optional<bool> in_use;            // std::nullopt if this process cannot tell
    bool persistent;
};

// Return the buses of a directory, sorted by name. std::nullopt is the default directory.
inline result<std::vector<bus_entry>> list_buses(const std::optional<std::string> &directory, std::nothrow_t) {
    toroni_bus_list *taken = nullptr;
    const int status = toroni_list_buses(detail::or_null(directory), &taken);
    if (status != TORONI_OK) return detail::last_failure(status);
    const detail::handle<toroni_bus_list> owner(taken);
    std::vector<bus_entry> all;
    for (std::size_t i = 0; i < toroni_bus_list_count(taken); ++i) {
        const toroni_bus_entry &one = *toroni_bus_list_at(taken, i);
        all.push_back({one.name, one.path, detail::or_none(one.problem),
                       one.capacity ? std::optional(one.capacity) : std::nullopt,
                       one.in_use < 0 ? std::nullopt : std::optional(one.in_use == 1), one.persistent != 0});
    }
    return all;
}

inline std::vector<bus_entry> list_buses(const std::optional<std::string> &directory = {}) {
    return list_buses(directory, std::nothrow).value();
}

// What clean() cleans: the bus of that name, or all buses of the directory if there is no name.
struct clean_options {
    std::optional<std::string> name;
    std::optional<std::string> directory;
    std::uint32_t flags = 0; // TORONI_CLEAN_...
};

// One thing that clean() did, or would do: toroni_clean_action.
struct clean_action {
    int kind;                        // TORONI_CLEANED_..., or -1
    std::uint32_t slot;              // slot, bus and file are for TORONI_CLEANED_SLOT
    std::optional<std::string> bus;
    std::optional<std::string> file;
    std::optional<std::string> path; // what was removed; for the other kinds
    std::string text;
};

// What clean() did or would do, and what it skipped.
struct clean_report {
    struct skip {
        std::string path;
        std::string why;
    };
    std::vector<clean_action> actions;
    std::vector<skip> skipped;
};

// Clean up after dead processes; see toroni_clean.
inline result<clean_report> clean(const clean_options &options, std::nothrow_t) {
    toroni_clean_report *taken = nullptr;
    const char *const directory = detail::or_null(options.directory), *const name = detail::or_null(options.name);
    const int status = toroni_clean(directory, name, options.flags, &taken);
    if (status != TORONI_OK) return detail::last_failure(status);
    const detail::handle<toroni_clean_report> owner(taken);
    clean_report report;
    for (std::size_t i = 0; i < toroni_clean_report_action_count(taken); ++i) {
        const toroni_clean_action &one = *toroni_clean_report_action(taken, i);
        report.actions.push_back({one.kind, one.slot, detail::or_none(one.bus), detail::or_none(one.file),
                                  detail::or_none(one.path), one.text});
    }
    for (std::size_t i = 0; i < toroni_clean_report_skip_count(taken); ++i) {
        const toroni_clean_skip &one = *toroni_clean_report_skip(taken, i);
        report.skipped.push_back({one.path, one.why});
    }
    return report;
}
inline clean_report clean(const clean_options &options) { return clean(options, std::nothrow).value(); }

} // namespace toroni

#endif
