// Tests what C++ adds: ownership, exceptions and results, ranges, and exceptions that pass through C functions.

#include <toroni.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#if __cplusplus >= 202002L
#include <ranges>
#endif
#include <thread>
#include <unistd.h>

#define CHECK(condition)                                                                             \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            std::cerr << __FILE__ << ':' << __LINE__ << ": " << #condition << " fails" << std::endl; \
            std::exit(1);                                                                            \
        }                                                                                            \
    } while (0)

namespace {

using namespace std::chrono_literals;

std::string directory;

toroni::bus open_bus(const std::string &name, toroni::open_options options = {}) {
    options.directory = directory;
    return toroni::bus(name, options);
}

#if __cplusplus >= 202002L
static_assert(std::ranges::input_range<toroni::subscriber>);
static_assert(std::ranges::input_range<toroni::subscriber::stream>);
static_assert(std::ranges::input_range<toroni::run> && std::ranges::input_range<const toroni::run>);
#endif

// A status of a later release is a valid value, too.
static_assert(std::is_same_v<std::underlying_type_t<toroni_status>, int>);

template <typename Error, typename Call> Error thrown_by(Call &&call) {
    try {
        call();
    } catch (const Error &error) {
        return error;
    }
    std::cerr << "nothing was thrown" << std::endl;
    std::exit(1);
}

static_assert(!std::is_copy_constructible_v<toroni::bus> && std::is_nothrow_move_constructible_v<toroni::bus>);
static_assert(!std::is_copy_constructible_v<toroni::publisher> && std::is_nothrow_move_assignable_v<toroni::publisher>);
static_assert(!std::is_copy_constructible_v<toroni::exclusive_publisher> &&
              std::is_nothrow_move_assignable_v<toroni::exclusive_publisher>);
static_assert(!std::is_copy_constructible_v<toroni::exclusive_topic> &&
              std::is_nothrow_move_assignable_v<toroni::exclusive_topic>);
static_assert(!std::is_copy_constructible_v<toroni::inlet> && std::is_nothrow_move_assignable_v<toroni::inlet>);
static_assert(!std::is_copy_constructible_v<toroni::inlet_topic> &&
              std::is_nothrow_move_assignable_v<toroni::inlet_topic>);
static_assert(!std::is_copy_constructible_v<toroni::subscriber> && std::is_nothrow_move_assignable_v<toroni::subscriber>);
static_assert(!std::is_copy_constructible_v<toroni::router> && std::is_nothrow_move_assignable_v<toroni::router>);

void handles_move_and_an_empty_one_returns_errors() {
    toroni::bus bus = open_bus("moving");
    toroni::subscriber subscriber(bus, "t");
    toroni::publisher first(bus, "t");
    toroni::publisher second = std::move(first);
    second.publish("moved");
    const auto empty = thrown_by<toroni::error>([&] { first.publish("not"); });
    CHECK(empty.status() == TORONI_INVALID_ARGUMENT && std::strstr(empty.what(), "is null"));
    CHECK(first.topic().empty() && first.largest_message() == 0);
    toroni::subscriber other = std::move(subscriber);
    CHECK(other.receive().text() == "moved");
    CHECK(!subscriber.try_receive(std::nothrow));
    toroni::bus gone = std::move(bus);
    toroni::stats stats = gone.stats();
    const toroni::stats kept = std::move(stats);
    CHECK(kept.bus().sequence == 1 && kept.subscribers().size() == 1);
    CHECK(thrown_by<toroni::error>([&] { stats.bus(); }).status() == TORONI_INVALID_ARGUMENT);
    CHECK(thrown_by<toroni::error>([&] { stats.publishers(); }).status() == TORONI_INVALID_ARGUMENT);
    CHECK(thrown_by<toroni::error>([&] { stats.subscribers(); }).status() == TORONI_INVALID_ARGUMENT);
    CHECK(bus.name().empty() && gone.name() == "moving" && gone.id().size() == 32);
    subscriber = std::move(other);
    second.publish("back");
    CHECK(subscriber.receive().text() == "back");
}

void errors_are_thrown_or_returned() {
    const auto error = thrown_by<toroni::error>([] { open_bus("a/b"); });
    CHECK(error.status() == TORONI_INVALID_NAME && std::strstr(error.what(), "a/b"));
    toroni::open_options options;
    options.directory = directory;
    options.existence = TORONI_OPEN_EXISTING;
    const auto missing = toroni::bus::open("missing", options, std::nothrow);
    CHECK(!missing && missing.error().status == TORONI_NOT_FOUND && !missing.error().text.empty());
    CHECK(thrown_by<toroni::error>([&] { (void)missing.value(); }).status() == TORONI_NOT_FOUND);
    const toroni::bus bus = open_bus("errors");
    CHECK(toroni::publisher::open(bus, "a//b", {}, std::nothrow).error().status == TORONI_INVALID_TOPIC);
    CHECK(toroni::publisher::open(bus, "a", {}, std::nothrow)->topic() == "a");
    CHECK(toroni::subscriber::open(bus, {{"**a"}, 0, 0, 0, 0, true, false, {}}, std::nothrow).error().status ==
          TORONI_INVALID_PATTERN);
    const toroni::publisher publisher(bus, "t");
    const std::vector<char> long_one(publisher.largest_message() + 1);
    CHECK(publisher.publish(long_one, std::nothrow).error().status == TORONI_TOO_LONG);
    const std::vector<std::string_view> some = {"a", {long_one.data(), long_one.size()}};
    const auto burst = thrown_by<toroni::burst_error>([&] { publisher.burst(some); });
    CHECK(burst.status() == TORONI_TOO_LONG && burst.published() == 0);
    CHECK(publisher.publish_batch(some, std::nothrow).error().status == TORONI_TOO_LONG);
}

void each_call_has_a_form_that_throws_nothing() {
    const toroni::bus bus = open_bus("nothrow");
    toroni::subscriber subscriber(bus, "t/*");
    const toroni::publisher publisher(bus, "t");
    const std::vector<std::string> two = {"1", "2"};
    const auto published = publisher.publish_batch(two, 1h, std::nothrow);
    CHECK(published && *published == 0);
    CHECK(publisher.publish("3", std::nothrow).value() == 2);
    CHECK(subscriber.add_pattern("t", std::nothrow));
    CHECK(subscriber.add_pattern("//", std::nothrow).error().status == TORONI_INVALID_PATTERN);
    publisher.publish("4");
    CHECK(subscriber.receive(std::nothrow)->text() == "1");
    const auto first = subscriber.receive_in_place(std::nothrow);
    CHECK(first && first->front().text() == "2" && (*first).validate(std::nothrow));
    CHECK((**subscriber.receive_in_place_for(1h, std::nothrow)).front().text() == "3");
    CHECK(subscriber.receive(std::nothrow)->text() == "4");
    CHECK(!*subscriber.receive_in_place_for(1ms, std::nothrow));
    subscriber.interrupt();
    CHECK(subscriber.receive_in_place(std::nothrow).error().status == TORONI_INTERRUPTED);
    CHECK(subscriber.stats(std::nothrow)->received == 4 && *subscriber.fd(std::nothrow) >= 0);
    CHECK(bus.stats(std::nothrow)->bus().sequence == 4 && bus.topics(std::nothrow)->size() == 1);
    CHECK(bus.reopened(std::nothrow)->outcome == TORONI_REOPENED_NOT);
    CHECK(toroni::list_buses(directory, std::nothrow)->size() > 0);
    CHECK(toroni::list_buses("/proc/self/exe", std::nothrow).error().status == TORONI_BAD_DIRECTORY);
    CHECK(toroni::clean({"nothrow", directory}, std::nothrow)->actions.empty());
    CHECK(toroni::clean({"missing", directory}, std::nothrow).error().status == TORONI_NOT_FOUND);

    toroni::subscriber empty = std::move(subscriber);
    std::swap(empty, subscriber);
    CHECK(empty.fd(std::nothrow).error().status == TORONI_INVALID_ARGUMENT);
    CHECK(empty.stats(std::nothrow).error().status == TORONI_INVALID_ARGUMENT);
    toroni::bus moved = open_bus("nothrow");
    const toroni::bus to = std::move(moved);
    CHECK(moved.stats(std::nothrow).error().status == TORONI_INVALID_ARGUMENT);
    CHECK(moved.topics(std::nothrow).error().status == TORONI_INVALID_ARGUMENT);
    CHECK(moved.reopened(std::nothrow).error().status == TORONI_INVALID_ARGUMENT);
}

void bytes_convert_from_containers_and_texts() {
    const toroni::bus bus = open_bus("bytes");
    toroni::subscriber subscriber(bus, "t");
    const toroni::publisher publisher(bus, "t");
    const std::vector<std::uint32_t> numbers = {1, 2, 3};
    const std::array<double, 2> halves = {0.5, 1.5};
    const int raw[] = {7, 8};
    publisher.publish("literal");
    publisher.publish(std::string("string"));
    publisher.publish(numbers);
    publisher.publish(halves);
    publisher.publish(raw);
    publisher.publish({&raw[1], sizeof raw[1]});
    publisher.publish({});
    // None of these arrays ends with 0.
    char full[4];
    std::memcpy(full, "full", sizeof full);
    const char also[] = {'a', 'l', 's', 'o'};
    char partly[100] = "partly";
    char *const pointer = partly;
    publisher.publish(full);
    publisher.publish(also);
    publisher.publish(partly);
    publisher.publish(pointer);
    publisher.publish_batch(std::vector<const char *>{"a"});
    CHECK(subscriber.receive().text() == "literal");
    CHECK(subscriber.receive().text() == "string");
    auto message = subscriber.receive();
    CHECK(message.payload().size() == 12 && !std::memcmp(message.payload().data(), numbers.data(), 12));
    CHECK(subscriber.receive().payload().size() == 16);
    CHECK(subscriber.receive().payload().size() == sizeof raw);
    message = subscriber.receive();
    CHECK(message.payload().size() == sizeof(int) && message.payload().data()[0] == std::byte{8});
    CHECK(subscriber.receive().payload().empty());
    for (const char *const text : {"full", "also", "partly", "partly", "a"}) CHECK(subscriber.receive().text() == text);
}

void messages_go_in_and_out_in_every_way() {
    toroni::open_options options;
    options.flags = TORONI_FLAG_TIMESTAMPS;
    const toroni::bus bus = open_bus("ways", options);
    toroni::subscriber subscriber(bus, "plant/**");
    const toroni::publisher publisher(bus, "plant/pump");
    const auto before = std::chrono::system_clock::now();
    publisher.publish("1");
    CHECK(publisher.try_publish("2"));
    CHECK(publisher.publish("3", 1h));
    publisher.publish_batch(std::vector<std::string>{"4"});
    CHECK(publisher.publish_batch(std::vector<std::string>{"5"}, 1h));
    publisher.burst(std::array<const char *, 1>{"6"});
    CHECK(publisher.burst(std::array<const char *, 1>{"7"}, 1h) == 1);
    CHECK(publisher.publish_in_place(1, [](toroni::writable_bytes bytes) { bytes[0] = std::byte{'8'}; }));
    toroni::publisher(bus, "plant/pump", {{}, true}).publish("9");
    std::string text;
    for (int i = 0; i < 3; ++i) {
        text += subscriber.receive().text();
        text += subscriber.try_receive()->text();
        const auto message = subscriber.receive_for(1h);
        text += message->text();
        CHECK(message->topic() == "plant/pump" && message->to_descendants() == (i == 2));
        CHECK(*message->timestamp() >= before - 1s && *message->timestamp() < before + 1h);
    }
    CHECK(text == "123456789");
    CHECK(!subscriber.try_receive() && !subscriber.receive_for(1ms) && !subscriber.receive_for(-1s));
    CHECK(!subscriber.try_receive_in_place() && !subscriber.receive_in_place_for(1ms));
    CHECK(subscriber.stats().received == 9 && subscriber.lag_bytes() == 0 && subscriber.fd() >= 0);
    const toroni::stats stats = bus.stats();
    CHECK(stats.bus().sequence == 9 && stats.publishers().at(0).messages == 9);
    CHECK(stats.subscribers().at(0).gating && stats.subscribers().size() == 1);
}

void an_exclusive_publisher_is_the_only_one() {
    toroni::open_options options;
    options.participant_name = "the feed";
    const toroni::bus bus = open_bus("exclusive", options), other = open_bus("exclusive");
    toroni::subscriber subscriber(bus, "**");
    const toroni::publisher publisher(other, "t");
    std::optional<toroni::exclusive_publisher> exclusive(bus);
    exclusive->set_always_fenced(true);
    const toroni::exclusive_topic a = exclusive->topic("a"), b = exclusive->topic("b/c", {{}, true});
    CHECK(a.largest_message() > 1 << 20);
    CHECK(exclusive->topic("//", {}, std::nothrow).error().status == TORONI_INVALID_TOPIC);
    exclusive->publish(a, "1");
    CHECK(exclusive->publish(b, "2", std::nothrow));
    CHECK(exclusive->publish(a, "3", 0s));
    CHECK(exclusive->publish(b, "4", 1h));
    exclusive->publish_batch(a, std::vector<std::string>{"5"});
    CHECK(exclusive->publish_batch(b, std::vector<std::string>{"6"}, 1h));
    exclusive->burst(a, std::array<const char *, 1>{"7"});
    CHECK(exclusive->burst(b, std::array<const char *, 1>{"8"}, 1h) == 1);
    CHECK(exclusive->publish_in_place(a, 1, [](toroni::writable_bytes bytes) { bytes[0] = std::byte{'9'}; }));
    CHECK(!exclusive->publish_in_place(a, 1, [](toroni::writable_bytes) { return false; }));
    const auto thrown = thrown_by<std::runtime_error>([&] {
        exclusive->publish_in_place(a, 1, [](toroni::writable_bytes) { throw std::runtime_error("mine"); });
    });
    CHECK(!std::strcmp(thrown.what(), "mine"));
    for (char expected = '1'; expected <= '9'; ++expected) {
        const auto message = subscriber.receive();
        CHECK(message.text() == std::string(1, expected));
        CHECK(message.topic() == (expected % 2 ? "a" : "b/c") && message.to_descendants() == !(expected % 2));
    }

    const auto refused = thrown_by<toroni::exclusive_error>([&] { publisher.publish("not"); });
    CHECK(refused.status() == TORONI_EXCLUSIVE && std::strstr(refused.what(), "\"the feed\""));
    CHECK(publisher.try_publish("not", std::nothrow).error().status == TORONI_EXCLUSIVE);
    thrown_by<toroni::exclusive_error>([&] { toroni::exclusive_publisher::open_for(other, 1ms); });
    thrown_by<toroni::exclusive_error>([&] { toroni::exclusive_publisher second(bus); });
    const auto owner = other.stats().lock_owner();
    CHECK(owner && owner->exclusive);
    toroni::exclusive_publisher moved = std::move(*exclusive);
    CHECK(exclusive->publish(a, "not", std::nothrow).error().status == TORONI_INVALID_ARGUMENT);
    exclusive.emplace(std::move(moved));
    exclusive->publish(a, "moved");
    exclusive.reset();
    publisher.publish("after");
    CHECK(subscriber.receive().text() == "moved" && subscriber.receive().text() == "after");

    const auto next = toroni::exclusive_publisher::open_for(other, 1h);
    CHECK(next && next->publish(a, "not", std::nothrow).error().status == TORONI_FOREIGN_TOPIC);
    CHECK(thrown_by<toroni::burst_error>([&] { next->burst(a, std::array<const char *, 1>{"not"}); }).published() == 0);
}

void an_exclusive_publisher_waits_with_a_limit() {
    const toroni::bus bus = open_bus("exclusive.limit"), other = open_bus("exclusive.limit");
    const toroni::publisher publisher(bus, "t");
    publisher.publish_in_place(1, [&](toroni::writable_bytes) {
        std::thread([&] {
            CHECK(!toroni::exclusive_publisher::open_for(other, 0ms));
            CHECK(!*toroni::exclusive_publisher::open_for(other, 1ms, std::nothrow));
        }).join();
        return false;
    });
    CHECK(toroni::exclusive_publisher::open_for(other, 1h));
}

void an_inlet_publishes_what_comes_from_elsewhere() {
    toroni::open_options options;
    options.max_arrivals = 4;
    const toroni::bus bus = open_bus("inlet", options);
    CHECK(bus.stats().bus().max_arrivals == 4);
    toroni::subscriber subscriber(bus, "**"), below(bus, "a/below");
    const toroni::inlet inlet(bus);
    const toroni::inlet_topic a = inlet.topic("a"), b = inlet.topic("b", std::nothrow).value();
    CHECK(inlet.topic("//", std::nothrow).error().status == TORONI_INVALID_TOPIC);
    const auto time = std::chrono::system_clock::time_point(5s);
    toroni::entry full(a, {"from ", "", "afar"});
    full.to_descendants = true;
    full.timestamp = time;
    full.origin = toroni::origin{7, 1, 2, 3};
    full.number = UINT64_MAX;
    const std::array<int, 2> numbers = {1, 2};
    CHECK(inlet.publish({full, toroni::entry(b, numbers), full}) == 3);
    CHECK(inlet.duplicates() == 1 && inlet.publish({full, {b, std::vector<toroni::bytes>()}}, 1h) == 2);
    auto message = subscriber.receive();
    CHECK(message.text() == "from afar" && message.topic() == "a" && message.to_descendants());
    CHECK(message.timestamp() == time && message.origin() == full.origin && message.number() == full.number);
    message = subscriber.receive();
    CHECK(message.payload().size() == sizeof numbers && message.topic() == "b");
    CHECK(!message.origin() && !message.number());
    CHECK(subscriber.receive().text().empty() && !subscriber.try_receive());
    CHECK(below.receive().origin() != toroni::origin());

    // In any order.
    toroni::entry third(a, "3"), second(a, "2");
    third.origin = toroni::origin{7, 1, 3, 3};
    third.open_from = 2;
    second.origin = toroni::origin{7, 1, 3, 2};
    second.open_from = 4;
    inlet.publish({third, second, second});
    CHECK(subscriber.receive().text() == "3" && subscriber.receive().text() == "2" && !subscriber.try_receive());

    // Losses.
    toroni::lost_messages lost;
    lost.from = {7, 1, 2, 4};
    lost.until = 9;
    lost.messages = 5;
    lost.reason = TORONI_REASON_GONE;
    lost.scope = {"a", "b/**"};
    inlet.publish_lost(lost, 6);
    CHECK(inlet.claim(7, 1, 2).next == 6 && !inlet.claim(7, 1, 2).taken_over);
    CHECK(inlet.publish_lost(lost, {}, {}, std::nothrow).value() && inlet.publish_lost(lost, {}, 1h));
    CHECK(inlet.claim(7, 1, 2).next == 9 && inlet.duplicates() == 4);
    lost.scope.clear();
    CHECK(inlet.publish_lost(lost, {}, 1h, std::nothrow).error().status == TORONI_INVALID_LOSS);

    // Another one.
    toroni::inlet other(bus);
    CHECK(std::strstr(thrown_by<toroni::taken_error>([&] { other.claim(7, 1, 2); }).what(), "already brings"));
    CHECK(other.claim(7, 1, 2, std::nothrow).error().status == TORONI_TAKEN);
    const auto refused = thrown_by<toroni::burst_error>([&] { other.publish({full}); });
    CHECK(refused.status() == TORONI_FOREIGN_TOPIC && refused.published() == 0);
    CHECK(thrown_by<toroni::burst_error>([&] { other.publish({full}, 1h); }).status() == TORONI_FOREIGN_TOPIC);
    const toroni::inlet moved = std::move(other);
    CHECK(moved.claim(8, 1, 0).next == 0 && other.duplicates() == 0);
    CHECK(thrown_by<toroni::error>([&] { other.claim(8, 1, 0); }).status() == TORONI_INVALID_ARGUMENT);
}

void losses_from_elsewhere_are_thrown_or_handled() {
    const toroni::bus bus = open_bus("lost");
    toroni::subscriber subscriber(bus, "**"), ranged(bus, "**"), returned(bus, "**");
    toroni::subscriber_options only;
    only.patterns = {"**"};
    only.local_only = true;
    toroni::subscriber local(bus, only);
    toroni::router router(bus), throwing(bus);
    std::vector<toroni::lost_messages> told;
    router.on("**", [](const toroni::message &) {});
    router.on_lost([&](const toroni::lost_messages &one) { told.push_back(one); });
    throwing.on("**", [](const toroni::message &) { throw std::logic_error("first"); });
    const toroni::publisher publisher(bus, "a");
    const toroni::inlet inlet(bus);
    toroni::lost_messages lost;
    lost.from = {7, 1, 2, 4};
    lost.until = 9;
    lost.messages = 5;
    lost.bound = TORONI_BOUND_AT_LEAST;
    lost.reason = TORONI_REASON_BUDGET;
    lost.scope = {"a", "b/**"};
    publisher.publish("before");
    inlet.publish_lost(lost);
    const auto same = [&](const toroni::lost_messages &found) {
        return found.from == lost.from && found.until == 9 && found.messages == 5 && found.scope == lost.scope &&
               found.bound == TORONI_BOUND_AT_LEAST && found.reason == TORONI_REASON_BUDGET;
    };
    CHECK(subscriber.receive().text() == "before");
    const auto thrown = thrown_by<toroni::lost>([&] { subscriber.receive(); });
    CHECK(thrown.status() == TORONI_LOST && same(thrown.messages()));
    CHECK(std::strstr(thrown.what(), "at least 5 messages"));
    CHECK(subscriber.stats().losses == 1 && subscriber.stats().lost_on_the_way == 5 && !subscriber.try_receive());
    const auto shown = bus.stats().subscribers();
    const auto mine = std::find_if(shown.begin(), shown.end(),
                                   [&](const auto &one) { return one.slot == subscriber.slot(); });
    CHECK(mine != shown.end() && mine->losses == 1 && mine->lost_on_the_way == 5);
    CHECK(returned.receive(std::nothrow));
    const auto failure = returned.receive_in_place(std::nothrow).error();
    CHECK(failure.status == TORONI_LOST && same(failure.lost_on_the_way.value()) && failure.loss.messages == 0);
    CHECK(local.receive().text() == "before" && !local.try_receive());
    CHECK(router.poll() == 2 && told.size() == 1 && same(told[0]));
    CHECK(thrown_by<std::logic_error>([&] { throwing.poll(); }).what() == std::string("first"));
    CHECK(same(thrown_by<toroni::lost>([&] { throwing.poll(); }).messages()));

    publisher.publish("after");
    std::string seen;
    const auto on_loss = [](toroni::loss) { std::exit(1); };
    const auto on_lost = [&](const toroni::lost_messages &) { seen += "lost "; };
    for (const toroni::message message : ranged.messages(on_loss, on_lost)) {
        seen += message.text();
        seen += ' ';
        if (message.text() == "after") break;
    }
    CHECK(seen == "before lost after ");
    lost.from.number = 9;
    lost.until = 10;
    inlet.publish_lost(lost);
    CHECK(thrown_by<toroni::lost>([&] { ranged.messages(on_loss).begin(); }).messages().until == 10);
    // A handler that throws.
    router.on_lost([](const toroni::lost_messages &) { throw std::logic_error("second"); });
    CHECK(thrown_by<std::logic_error>([&] { router.poll(); }).what() == std::string("second"));
}

// Overwrites the whole ring, of 64 KiB.
void lap(const toroni::bus &bus) {
    const toroni::publisher noise(bus, "noise");
    const std::array<char, 1000> payload{};
    for (int i = 0; i < 100; ++i) noise.publish(payload);
}

toroni::bus small_bus(const std::string &name, std::uint32_t topics = 0, std::uint64_t bytes = 0) {
    toroni::open_options options;
    options.capacity = 1 << 16;
    options.policy = toroni::policy::overwrite();
    options.retained_topics = topics;
    options.retained_bytes = bytes;
    return open_bus(name, options);
}

toroni::subscriber asking(const toroni::bus &bus, const std::string &pattern) {
    toroni::subscriber_options options;
    options.patterns = {pattern};
    options.retained = true;
    return {bus, options};
}

void values_come_before_the_stream() {
    const toroni::bus bus = small_bus("values");
    toroni::publisher_options retained;
    retained.retained = true;
    const toroni::publisher publisher(bus, "a", retained), plain(bus, "a");
    CHECK(!bus.retained("a") && !*bus.retained("unknown", std::nothrow));
    publisher.publish("1");
    publisher.publish("2");
    lap(bus);
    auto late = asking(bus, "a"), in_place = asking(bus, "a");
    CHECK(!late.is_current());
    const auto value = late.receive();
    CHECK(value.text() == "2" && value.is_retained() && !value.is_cleared() && late.is_current());
    CHECK(in_place.receive_in_place().front().is_retained());
    publisher.publish("3");
    CHECK(publisher.clear() == 103 && publisher.clear(1h) == 104 && *publisher.clear(std::nothrow) == 105);
    CHECK(**publisher.clear(1h, std::nothrow) == 106);
    CHECK(thrown_by<toroni::error>([&] { plain.clear(); }).status() == TORONI_NOT_RETAINED);
    CHECK(plain.clear(1h, std::nothrow).error().status == TORONI_NOT_RETAINED);
    CHECK(late.receive().text() == "3");
    const auto cleared = late.receive();
    CHECK(cleared.is_cleared() && !cleared.is_retained() && cleared.topic() == "a" && cleared.sequence() == 103);
    CHECK(in_place.receive_in_place().front().text() == "3");
    CHECK(in_place.receive_in_place().front().is_cleared());
    CHECK(!bus.retained("a"));
    const auto late_one = std::move(late);
    CHECK(!late.is_current() && late_one.is_current());

    toroni::exclusive_publisher exclusive(bus);
    const auto topic = exclusive.topic("b", retained);
    exclusive.publish(topic, "alone");
    CHECK(bus.retained("b").value().text() == "alone");
    CHECK(exclusive.clear(topic) == 108 && exclusive.clear(topic, 1h) == 109);
    CHECK(*exclusive.clear(topic, std::nothrow) == 110 && **exclusive.clear(topic, 1h, std::nothrow) == 111);
    CHECK(!bus.retained("b"));
    const auto other = exclusive.topic("b");
    CHECK(thrown_by<toroni::error>([&] { exclusive.clear(other); }).status() == TORONI_NOT_RETAINED);
    CHECK(thrown_by<toroni::exclusive_error>([&] { toroni::publisher(bus, "c", retained); }).status() ==
          TORONI_EXCLUSIVE);
}

void values_are_read_without_a_subscriber() {
    toroni::open_options options;
    options.flags = TORONI_FLAG_TIMESTAMPS;
    const toroni::bus bus = open_bus("read", options);
    toroni::publisher_options retained;
    retained.retained = true;
    toroni::publisher(bus, "a/2", retained).publish("");
    toroni::publisher(bus, "a/1", retained).publish("first");
    toroni::publisher(bus, "b");
    const toroni::inlet inlet(bus), another(bus);
    auto topic = inlet.topic("a/3");
    inlet.retain(topic);
    CHECK(another.retain(topic, std::nothrow).error().status == TORONI_FOREIGN_TOPIC);
    toroni::entry entry(topic, "1.5");
    entry.origin = toroni::origin{7, 1, 2, 9};
    entry.number = 12;
    inlet.publish({entry});
    const auto all = bus.retained_matching("a/*");
    CHECK(all.size() == 3 && all[0]->topic() == "a/2" && all[0]->payload().empty() && all[0]->sequence() == 0);
    CHECK(all[0]->timestamp() && !all[0]->origin() && !all[0]->number());
    CHECK(all[1]->topic() == "a/1" && all[1]->text() == "first" && all[1]->position() > 0);
    CHECK(all[2]->text() == "1.5" && all[2]->origin() == entry.origin && all[2]->number() == 12);
    CHECK(bus.retained_matching("//", std::nothrow).error().status == TORONI_INVALID_PATTERN);
    CHECK(bus.retained("//", std::nothrow).error().status == TORONI_INVALID_TOPIC);
    const auto topics = bus.topics();
    CHECK(topics.size() == 4 && topics[0].value == TORONI_TOPIC_KEPT && topics[0].value_sequence == 1);
    CHECK(topics[0].value_bytes == 5 && topics[0].value_published == all[1]->timestamp());
    CHECK(topics[3].value == TORONI_TOPIC_NOT_RETAINED && !topics[3].value_published);
    CHECK(bus.stats().bus().retained_topics == 3);
    options.retained_topics = TORONI_NO_RETAINED;
    const toroni::bus without = open_bus("without", options);
    CHECK(thrown_by<toroni::error>([&] { without.retained("a"); }).status() == TORONI_NO_VALUES);
    CHECK(thrown_by<toroni::error>([&] { asking(without, "a"); }).status() == TORONI_NO_VALUES);
    toroni::bus moved = open_bus("read");
    const toroni::bus to = std::move(moved);
    CHECK(moved.retained("a", std::nothrow).error().status == TORONI_INVALID_ARGUMENT);
    CHECK(moved.retained_matching("a", std::nothrow).error().status == TORONI_INVALID_ARGUMENT);
}

void a_missing_value_is_thrown_or_handled() {
    const toroni::bus bus = small_bus("without_room", 3, 4096);
    toroni::publisher_options retained;
    retained.retained = true;
    const toroni::publisher publisher(bus, "a", retained), plain(bus, "a");
    const std::array<char, 1020> payload{};
    CHECK(publisher.publish(payload, std::nothrow).error().status == TORONI_VALUE_TOO_LONG);
    const auto sequence = plain.publish(payload);
    lap(bus);
    const auto is_it = [&](const toroni::missing_value &value) {
        return value.topic == "a" && value.sequence == sequence && value.length == 1020;
    };
    const auto thrown = thrown_by<toroni::value_missing>([&] { bus.retained("a"); });
    CHECK(thrown.status() == TORONI_VALUE_MISSING && is_it(thrown.value()) && std::strstr(thrown.what(), "1020 bytes"));
    CHECK(is_it(bus.retained("a", std::nothrow).error().missing.value()));
    const auto all = bus.retained_matching("**");
    CHECK(all.size() == 1 && !all[0] && is_it(all[0].error().missing.value()));
    CHECK(thrown_by<toroni::value_missing>([&] { (void)all[0].value(); }).what() == all[0].error().text);
    CHECK(bus.stats().bus().missing_values == 1 && bus.topics()[0].value == TORONI_TOPIC_MISSING);
    CHECK(bus.topics()[0].value_bytes == 1020 && bus.topics()[0].value_sequence == sequence);
    auto subscriber = asking(bus, "*"), ranged = asking(bus, "*"), in_place = asking(bus, "*");
    CHECK(is_it(thrown_by<toroni::value_missing>([&] { subscriber.receive(); }).value()));
    CHECK(is_it(in_place.receive_in_place(std::nothrow).error().missing.value()));
    CHECK(!subscriber.try_receive());
    toroni::publisher(bus, "end").publish("");
    CHECK(subscriber.receive().topic() == "end");
    int missing = 0;
    const auto on_missing = [&](const toroni::missing_value &value) { missing += is_it(value); };
    for (const toroni::message message : ranged.messages({}, {}, on_missing)) {
        CHECK(message.topic() == "end" && missing == 1);
        break;
    }
}

void an_inlet_waits_with_a_limit() {
    toroni::open_options options;
    options.capacity = 1 << 16;
    options.policy = toroni::policy::wait_as_long_as_it_lives();
    const toroni::bus bus = open_bus("inlet.limit", options);
    const toroni::subscriber subscriber(bus, "**");
    const toroni::inlet inlet(bus);
    const toroni::inlet_topic topic = inlet.topic("t");
    const std::vector<char> payload(1000);
    const std::size_t published = inlet.publish(std::vector<toroni::entry>(100, {topic, payload}), 10ms);
    CHECK(published > 0 && published < 100);
    toroni::lost_messages lost;
    lost.from = {7, 1, 2, 0};
    lost.until = 1;
    lost.reason = TORONI_REASON_SILENT;
    lost.scope = std::vector<std::string>(16, std::string(200, 'a'));
    // Until the ring is full up to the last byte.
    while (inlet.publish_lost(lost, {}, 10ms)) ++lost.until;
    CHECK(lost.until < 100);
}

void an_inlet_can_wait_less_than_the_bus_says() {
    toroni::open_options options;
    options.capacity = 1 << 16;
    options.policy = toroni::policy::wait_as_long_as_it_lives();
    const toroni::bus bus = open_bus("hasty-inlet", options);
    toroni::subscriber subscriber(bus, "t");
    const toroni::inlet inlet(bus, {toroni::policy::overwrite()});
    const toroni::inlet_topic topic = inlet.topic("t");
    const std::string large(1 << 14, 'x');
    for (int i = 0; i < 10; ++i) inlet.publish({{topic, large}});
    thrown_by<toroni::lapped>([&] { subscriber.try_receive(); });
    const toroni::publisher publisher(bus, "t");
    CHECK(publisher.publish_in_place(1, [&](toroni::writable_bytes) {
        std::thread([&] {
            CHECK(!inlet.claim(7, 1, 0, 10ms) && !inlet.claim(7, 1, 0, 0s));
            CHECK(!inlet.claim(7, 1, 0, 10ms, std::nothrow).value());
            CHECK(!inlet.advance({7, 1, 0, 1}, 10ms));
        }).join();
    }));
    CHECK(inlet.claim(7, 1, 0, 1h).value().next == 0);
    CHECK(inlet.advance({7, 1, 0, 5}) && inlet.claim(7, 1, 0).next == 5);
    CHECK(inlet.advance({7, 1, 0, ~std::uint64_t{0}}, {}, std::nothrow).error().status == TORONI_INVALID_ORIGIN);
    toroni::inlet other(bus, {});
    CHECK(thrown_by<toroni::taken_error>([&] { other.claim(7, 1, 0, 1h); }).status() == TORONI_TAKEN);
    options.policy = toroni::policy::overwrite();
    const toroni::bus hasty = open_bus("hasty", options);
    CHECK(toroni::inlet::open(hasty, {toroni::policy::wait_as_long_as_it_lives()}, std::nothrow).error().status ==
          TORONI_INVALID_SETTING);
}

void publishers_learn_the_sequences_of_their_messages() {
    toroni::open_options options;
    options.capacity = 1 << 16;
    options.policy = toroni::policy::wait_as_long_as_it_lives();
    const toroni::bus bus = open_bus("numbered", options);
    toroni::subscriber subscriber(bus, "t");
    const toroni::publisher publisher(bus, "t");
    CHECK(publisher.publish("0") == 0 && publisher.publish("1", std::nothrow).value() == 1);
    CHECK(publisher.try_publish("2") == 2 && publisher.publish("3", 1h) == 3);
    CHECK(publisher.publish_in_place(1, [](toroni::writable_bytes bytes) { bytes[0] = std::byte{'4'}; }) == 4);
    const std::array<const char *, 2> two{"5", "6"}, next{"7", "8"}, alone{"d", "e"};
    CHECK(publisher.publish_batch(two) == 5 && publisher.publish_batch(next, 1h) == 7);
    CHECK(publisher.publish_batch(std::vector<std::string>{}) == 0);
    auto exclusive = std::make_optional<toroni::exclusive_publisher>(bus);
    const toroni::exclusive_topic topic = exclusive->topic("t");
    thrown_by<toroni::exclusive_error>([&] { publisher.publish("not"); });
    CHECK(publisher.try_publish("not", std::nothrow).error().status == TORONI_EXCLUSIVE);
    CHECK(exclusive->publish(topic, "9") == 9 && exclusive->publish(topic, "a", std::nothrow).value() == 10);
    CHECK(exclusive->publish(topic, "b", 0s) == 11 && exclusive->publish(topic, "c", 1h) == 12);
    CHECK(exclusive->publish_batch(topic, alone) == 13);
    CHECK(exclusive->publish_in_place(topic, 1, [](toroni::writable_bytes bytes) { bytes[0] = std::byte{'f'}; }) == 15);
    for (std::uint64_t sequence = 0; sequence < 16; ++sequence) {
        const auto message = subscriber.receive();
        CHECK(message.sequence() == sequence && message.text()[0] == "0123456789abcdef"[sequence]);
    }
    const std::string large(1 << 14, 'x');
    while (exclusive->publish(topic, large, 0s)) {}
    std::thread([&] { CHECK(!exclusive->publish(topic, large, 10ms)); }).join();
    exclusive.reset();
    CHECK(!publisher.try_publish(large));
    std::thread([&] { CHECK(!publisher.publish(large, 10ms)); }).join();
    CHECK(publisher.publish(std::string(1 << 20, 'x'), 1h, std::nothrow).error().status == TORONI_TOO_LONG);
}

void a_subscriber_holds_messages() {
    toroni::open_options options;
    options.capacity = 1 << 16;
    options.policy = toroni::policy::wait_as_long_as_it_lives();
    const toroni::bus bus = open_bus("holds", options);
    toroni::subscriber subscriber(bus, "t");
    const toroni::publisher publisher(bus, "t");
    const std::string large(1 << 10, 'x');
    const std::uint64_t first = publisher.publish("first");
    CHECK(subscriber.receive().text() == "first" && !subscriber.held());
    subscriber.hold(first);
    CHECK(subscriber.held() == first);
    while (publisher.try_publish(large)) CHECK(subscriber.try_receive());
    toroni::subscriber_options from;
    from.patterns = {"t"};
    from.start = TORONI_START_SEQUENCE;
    from.sequence = first;
    from.gating = false;
    toroni::subscriber again(bus, from);
    CHECK(again.receive().text() == "first");
    CHECK(again.hold(first, std::nothrow).error().status == TORONI_NOT_GATING);
    CHECK(subscriber.hold(first + 20, std::nothrow) && publisher.try_publish(large));
    CHECK(thrown_by<toroni::error>([&] { subscriber.hold(first); }).status() == TORONI_POSITION_UNAVAILABLE);
    CHECK(subscriber.held() == first + 20);
    subscriber.release_hold();
    CHECK(!subscriber.held() && subscriber.release_hold(std::nothrow));
    for (int i = 0; i < 200; ++i) {
        while (subscriber.try_receive()) {}
        CHECK(publisher.try_publish(large));
    }
    const toroni::subscriber moved = std::move(subscriber);
    CHECK(!subscriber.held() && !subscriber.hold(1, std::nothrow) && !subscriber.release_hold(std::nothrow));
}

void parts_of_a_snapshot_outlive_it() {
    toroni::open_options options;
    options.participant_name = "a name longer than a string keeps within";
    const toroni::bus bus = open_bus("snapshots", options);
    const toroni::subscriber subscriber(bus, "t");
    const toroni::publisher publisher(bus, "t");
    publisher.publish("1");
    std::size_t count = 0;
    for (const auto &one : bus.stats().publishers()) {
        CHECK(one.name == *options.participant_name && one.alive && !one.stopped && one.waited == 0s);
        CHECK(!one.dumping);
        ++count;
    }
    for (const auto &one : bus.stats().subscribers()) {
        CHECK(one.name == *options.participant_name && one.gating && one.received == 0);
        CHECK(one.patterns == std::vector<std::string>{"t"} && !one.patterns_truncated && !one.dumping);
        ++count;
    }
    CHECK(bus.stats().publishers().at(0).started > std::chrono::system_clock::now() - 1h);
    CHECK(bus.stats().subscribers().at(0).same_pid_namespace && bus.stats().sockets().empty());
    CHECK(bus.stats().subscribers().at(0).slot == subscriber.slot() && !bus.stats().lock_owner());
    publisher.publish_in_place(1, [&](toroni::writable_bytes) {
        std::thread([&] {
            const auto owner = bus.stats().lock_owner();
            CHECK(owner && owner->slot == 0u && owner->pid == static_cast<std::uint32_t>(getpid()));
            CHECK(owner->alive == true && !owner->stopped && !owner->dumping && !owner->exclusive);
        }).join();
        return false;
    });
    const auto &taken = bus.stats().bus();
    CHECK(count == 2 && taken.sequence == 1 && taken.capacity == 4u << 20);
}

void settings_arrive() {
    toroni::open_options options;
    options.notify = TORONI_NOTIFY_MULTICAST;
    options.multicast_address = {239, 1, 2, 3};
    options.multicast_port = 4567;
    const toroni_bus_stats found = open_bus("multicast", options).stats().bus();
    CHECK(found.notify == TORONI_NOTIFY_MULTICAST && found.multicast_port == 4567);
    CHECK(!std::memcmp(found.multicast_address, options.multicast_address.data(), 4));
}

void an_exception_in_place_publishes_nothing_and_is_rethrown() {
    const toroni::bus bus = open_bus("throwing");
    toroni::subscriber subscriber(bus, "t");
    const toroni::publisher publisher(bus, "t");
    const auto error = thrown_by<std::out_of_range>([&] {
        publisher.publish_in_place(8, [](toroni::writable_bytes) { throw std::out_of_range("inside"); });
    });
    CHECK(std::string(error.what()) == "inside");
    CHECK(!publisher.publish_in_place(8, [](toroni::writable_bytes) { return false; }));
    CHECK(publisher.publish_in_place(8, [](toroni::writable_bytes bytes) { return bytes.size() == 8; }));
    CHECK(subscriber.receive().sequence() == 0 && !subscriber.try_receive());
}

void a_range_ends_when_it_is_interrupted() {
    const toroni::bus bus = open_bus("range");
    toroni::subscriber subscriber(bus, "t");
    const toroni::publisher publisher(bus, "t");
    std::atomic<int> seen = 0;
    std::thread receiver([&] {
        for (const toroni::message message : subscriber) seen += static_cast<int>(message.text().size());
    });
    publisher.publish("12");
    publisher.publish("345");
    while (seen < 5) std::this_thread::yield();
    subscriber.interrupt();
    receiver.join();
    subscriber.interrupt();
    CHECK(thrown_by<toroni::interrupted>([&] { subscriber.receive(); }).status() == TORONI_INTERRUPTED);
}

void iterators_meet_the_standard() {
    const toroni::bus bus = open_bus("iterators");
    toroni::subscriber subscriber(bus, "t");
    const toroni::publisher publisher(bus, "t");
    CHECK(toroni::subscriber::iterator() == subscriber.end() && toroni::run::iterator() == toroni::run::iterator());
    publisher.publish_batch(std::vector<std::string>{"1", "2", "3"});
    publisher.publish("4");
    subscriber.interrupt();
#if __cplusplus >= 202002L
    std::string text;
    for (const toroni::message message : subscriber | std::views::take(2)) text += message.text();
    CHECK(text == "12");
#else
    auto first = subscriber.begin();
    CHECK((*first).text() == "1");
    first++;
    CHECK((*first).text() == "2");
#endif
    const toroni::run run = subscriber.receive_in_place();
    CHECK(std::distance(run.begin(), run.end()) >= 1);
    run.validate();
}

void losses_are_exact() {
    toroni::open_options options;
    options.capacity = 1 << 16;
    options.policy = toroni::policy::overwrite();
    const toroni::bus bus = open_bus("losses", options);
    toroni::subscriber first(bus, "t"), second(bus, "t");
    const toroni::publisher publisher(bus, "t"), end(bus, "t/end");
    first.add_pattern("t/end");
    for (int i = 0; i < 200; ++i) publisher.publish(std::vector<char>(1024));
    end.publish("");
    const auto lapped = thrown_by<toroni::lapped>([&] { (void)second.begin(); });
    CHECK(lapped.loss().messages > 100 && second.receive().sequence() == lapped.loss().messages);
    std::uint64_t lost = 0, seen = 0;
    for (const toroni::message message : first.messages([&](toroni::loss loss) { lost += loss.messages; })) {
        ++seen;
        if (message.topic() == "t/end") break;
    }
    CHECK(lost > 100 && lost + seen == 201);
    CHECK(second.try_receive_in_place(std::nothrow).value().has_value());
}

void old_messages_are_passed_over() {
    toroni::open_options options;
    options.capacity = 1 << 16;
    options.policy = toroni::policy::overwrite();
    options.flags = TORONI_FLAG_TIMESTAMPS;
    const toroni::bus bus = open_bus("old", options);
    toroni::subscriber_options wanted;
    wanted.patterns = {"t"};
    wanted.max_age = 0ns;
    toroni::subscriber fresh(bus, wanted);
    wanted.max_age = 1h;
    wanted.after_loss = TORONI_CONTINUE_NEWEST;
    toroni::subscriber newest(bus, wanted);
    const toroni::publisher publisher(bus, "t");
    for (int i = 0; i < 200; ++i) publisher.publish(std::vector<char>(1024));
    CHECK(thrown_by<toroni::lapped>([&] { newest.receive(); }).loss().messages == 199);
    CHECK(newest.receive().sequence() == 199 && !newest.try_receive());
    const auto lost = thrown_by<toroni::lapped>([&] { fresh.try_receive(); }).loss().messages;
    CHECK(!fresh.try_receive() && fresh.stats().stale == 200 - lost);
}

// One subscriber has received a message, but not all; the other has never received.
void a_thread_that_publishes_to_itself_gets_an_error() {
    toroni::open_options options;
    options.capacity = 1 << 16;
    options.policy = toroni::policy::wait_as_long_as_it_lives();
    const toroni::bus bus = open_bus("oneself", options);
    const toroni::publisher publisher(bus, "t");
    for (const bool receives : {false, true}) {
        toroni::subscriber subscriber(bus, "t");
        publisher.publish("one");
        if (receives) (void)subscriber.receive();
        const auto thrown = thrown_by<toroni::error>([&] {
            for (int i = 0; i < 2000; ++i) publisher.publish(std::vector<char>(100));
        });
        CHECK(thrown.status() == TORONI_WOULD_WAIT_FOR_ITSELF);
        CHECK(subscriber.try_receive().has_value());
    }
}

void runs_are_iterated_and_validated() {
    toroni::open_options options;
    options.policy = toroni::policy::overwrite();
    const toroni::bus bus = open_bus("runs", options);
    toroni::subscriber subscriber(bus, "t");
    const toroni::publisher publisher(bus, "t");
    publisher.publish_batch(std::vector<std::vector<int>>{{1}, {2}, {3}});
    int sum = 0;
    const toroni::run run = subscriber.receive_in_place();
    for (const toroni::message message : run) {
        int number;
        CHECK(message.payload().size() == sizeof number);
        std::memcpy(&number, message.payload().data(), sizeof number);
        sum += number;
    }
    run.validate();
    CHECK(sum == 6 && run.front().sequence() == 0);
    const std::vector<char> large(1 << 20);
    for (int i = 0; i < 8; ++i) publisher.publish(large);
    const auto lost = run.validate(std::nothrow);
    CHECK(!lost && lost.error().status == TORONI_LAPPED && lost.error().loss.messages == 3);
    const auto lapped = thrown_by<toroni::lapped>([&] { subscriber.receive_in_place(); });
    CHECK(lapped.loss().messages > 0);
    CHECK(thrown_by<toroni::error>([&] { run.validate(); }).status() == TORONI_INVALID_ARGUMENT);
}

void a_run_is_not_mistaken_for_the_next_one() {
    toroni::open_options options;
    options.capacity = 1 << 16;
    options.policy = toroni::policy::overwrite();
    const toroni::bus bus = open_bus("stale", options);
    toroni::subscriber made(bus, "t");
    const toroni::publisher publisher(bus, "t");
    const std::vector<char> some(1000);
    for (int i = 0; i < 40; ++i) publisher.publish(some);
    const toroni::run first = made.receive_in_place();
    toroni::run::iterator next = first.begin();
    // Runs and iterators refer to the handle, whose address does not change.
    toroni::subscriber subscriber = std::move(made);
    ++next;
    first.validate();
    const toroni::run second = subscriber.receive_in_place();
    second.validate();
    // The validation of the second run says nothing about the first one, whose bytes may be overwritten.
    const auto stale = first.validate(std::nothrow);
    CHECK(!stale && stale.error().status == TORONI_INVALID_ARGUMENT && !stale.error().text.empty());
    CHECK(thrown_by<toroni::error>([&] { ++next; }).status() == TORONI_INVALID_ARGUMENT);
    second.validate();
    subscriber.try_receive();
    CHECK(second.validate(std::nothrow).error().status == TORONI_INVALID_ARGUMENT);
}

void routers_call_handlers_which_may_throw() {
    const toroni::bus bus = open_bus("router");
    const toroni::publisher publisher(bus, "a/b");
    toroni::router made(bus);
    std::string heard;
    made.on("a/*", [&](const toroni::message &message) { heard += message.text(); })
        .on("**", [&](const toroni::message &message) {
            if (message.text() == "throw") throw std::out_of_range("handler");
        })
        .on_lapped([](toroni::loss) {});
    CHECK(thrown_by<toroni::error>([&] { made.on("//", [](const toroni::message &) {}); }).status() ==
          TORONI_INVALID_PATTERN);
    toroni::router router = std::move(made);
    publisher.publish("1");
    CHECK(router.poll() == 1 && heard == "1");
    CHECK(!router.run_once(1ms));
    // The exception is thrown after all available messages were handled, and only once.
    publisher.publish("throw");
    publisher.publish("2");
    CHECK(std::string(thrown_by<std::out_of_range>([&] { router.poll(); }).what()) == "handler");
    CHECK(heard == "1throw2" && router.poll() == 0);
    publisher.publish("3");
    CHECK(router.run_once(1h));
    publisher.publish("throw");
    publisher.publish("4");
    thrown_by<std::out_of_range>([&] { router.run(); });
    CHECK(heard == "1throw23throw");
    router.interrupt();
    router.run();
    CHECK(router.poll() == 1 && heard == "1throw23throw4" && router.fd() >= 0);
    CHECK(router.stats().received == 6 && router.slot() == 0 && router.lag_bytes() == 0 && router.position() > 0);
    CHECK(thrown_by<toroni::error>([&] { made.poll(); }).status() == TORONI_INVALID_ARGUMENT);
    const auto ignored = [](const toroni::message &) {};
    CHECK(thrown_by<toroni::error>([&] { made.on("t", ignored); }).status() == TORONI_INVALID_ARGUMENT);
    CHECK(thrown_by<toroni::error>([&] { made.on_lapped([](toroni::loss) {}); }).status() ==
          TORONI_INVALID_ARGUMENT);
}

void a_router_throws_a_loss_after_the_exception_of_a_handler() {
    toroni::open_options options;
    options.capacity = 1 << 16;
    options.policy = toroni::policy::overwrite();
    const toroni::bus bus = open_bus("router-losses", options);
    const toroni::publisher publisher(bus, "t");
    toroni::router router(bus);
    std::uint64_t heard = 0;
    router.on("t", [&](const toroni::message &message) {
        ++heard;
        if (message.text() != "flood") return;
        for (int i = 0; i < 200; ++i) publisher.publish(std::vector<char>(1024));
        throw std::out_of_range("handler");
    });
    publisher.publish("flood");
    thrown_by<std::out_of_range>([&] { router.poll(); });
    const std::uint64_t lost = thrown_by<toroni::lapped>([&] { router.poll(); }).loss().messages;
    CHECK(heard == 1 && lost > 100);
    // Only once; the remaining messages are handled.
    router.poll();
    CHECK(heard + lost == 201 && router.stats().lost_messages == lost);
    publisher.publish("flood");
    thrown_by<std::out_of_range>([&] { router.poll(); });
    thrown_by<toroni::lapped>([&] { router.run_once(1h); });
    router.poll();
    publisher.publish("flood");
    thrown_by<std::out_of_range>([&] { router.poll(); });
    thrown_by<toroni::lapped>([&] { router.run(); });
}

void a_loss_handler_may_try_to_replace_itself() {
    toroni::open_options options;
    options.capacity = 1 << 16;
    options.policy = toroni::policy::overwrite();
    const toroni::bus bus = open_bus("router-replaces", options);
    const toroni::publisher publisher(bus, "t");
    toroni::router router(bus);
    router.on("t", [](const toroni::message &) {});
    const auto flood = [&] {
        for (int i = 0; i < 200; ++i) publisher.publish(std::vector<char>(1024));
        router.poll();
    };
    std::string recorded;
    router.on_lapped([&, text = std::string("what belongs to the function that is called")](toroni::loss) {
        const auto again = thrown_by<toroni::error>([&] { router.on_lapped([](toroni::loss) {}); });
        CHECK(again.status() == TORONI_REENTRANT);
        recorded += text;
    });
    flood();
    CHECK(recorded == "what belongs to the function that is called");
    // The call was refused, so the old handler is still set.
    flood();
    CHECK(recorded.size() == 2 * std::strlen("what belongs to the function that is called"));
    router.on_lapped([&](toroni::loss) { recorded = "another"; });
    flood();
    CHECK(recorded == "another");
}

void topics_and_buses_are_listed_and_cleaned() {
    CHECK(toroni::matches("plant/*", "plant/pump") && !toroni::matches("plant/*/*", "plant/pump"));
    CHECK(toroni::matches_descendants("plant/*/*", "plant/pump") && !toroni::matches_descendants("a", "a/b"));
    CHECK(toroni::matches("a*", "a", std::nothrow).error().status == TORONI_INVALID_PATTERN);
    CHECK(thrown_by<toroni::error>([] { toroni::matches("a", ""); }).status() == TORONI_INVALID_TOPIC);
    CHECK(setenv("TORONI_DIR", directory.c_str(), 1) == 0 && toroni::default_directory() == directory);
    CHECK(unsetenv("TORONI_DIR") == 0 && toroni::default_directory() == "/dev/shm/toroni");
    CHECK(setenv("TORONI_DIR", "", 1) == 0 && toroni::default_directory() == "/dev/shm/toroni");
    CHECK(toroni::list_buses("", std::nothrow).error().status == TORONI_INVALID_SETTING);
    CHECK(unsetenv("TORONI_DIR") == 0);
    const std::string buses_directory = directory + "/listed";
    CHECK(toroni::list_buses(buses_directory).empty());
    toroni::open_options options;
    options.directory = buses_directory;
    std::optional<toroni::bus> bus(std::in_place, "used", options);
    toroni::publisher(*bus, "plant/valve").publish("12345");
    toroni::publisher(*bus, "plant/pump");
    const auto topics = bus->topics();
    CHECK(topics.size() == 2 && topics[0].name == "plant/pump" && topics[0].messages == 0 && topics[0].bytes == 0);
    CHECK(topics[1].name == "plant/valve" && topics[1].messages == 1 && topics[1].bytes == 5);
    CHECK(bus->reopened().outcome == TORONI_REOPENED_NOT && bus->reopened().messages == 0);
    options.flags = TORONI_FLAG_PERSISTENT;
    const std::string kept(toroni::bus("kept", options).path());
    std::filesystem::resize_file(std::string(toroni::bus("short", options).path()) + "/ring", 100);

    const auto buses = toroni::list_buses(buses_directory);
    CHECK(buses.size() == 3 && buses[0].name == "kept" && buses[0].path == kept && buses[0].persistent);
    CHECK(buses[0].in_use == false && buses[0].capacity == 4u << 20 && !buses[0].problem);
    CHECK(buses[1].name == "short" && !buses[1].problem.value().empty() && !buses[1].capacity && !buses[1].persistent);
    CHECK(buses[2].name == "used" && buses[2].in_use == true && !buses[2].persistent);

    auto report = toroni::clean({"kept", buses_directory, TORONI_CLEAN_PERSISTENT | TORONI_CLEAN_DRY_RUN});
    CHECK(report.actions.size() == 1 && report.skipped.empty() && std::filesystem::exists(kept));
    report = toroni::clean({"kept", buses_directory, TORONI_CLEAN_PERSISTENT});
    CHECK(report.actions.at(0).kind == TORONI_CLEANED_BUS && report.actions[0].path == kept && !report.actions[0].bus);
    CHECK(report.actions[0].text.find(kept) != std::string::npos && !std::filesystem::exists(kept));
    report = toroni::clean({{}, buses_directory});
    CHECK(report.actions.empty() && report.skipped.size() == 1 && !report.skipped[0].why.empty());
    CHECK(report.skipped[0].path == buses[1].path);
    const auto missing = thrown_by<toroni::error>([&] { toroni::clean({"missing", buses_directory}); });
    CHECK(missing.status() == TORONI_NOT_FOUND);
    CHECK(thrown_by<toroni::error>([] { toroni::list_buses("/proc/self/exe"); }).status() == TORONI_BAD_DIRECTORY);

    const toroni::bus moved = std::move(*bus);
    CHECK(thrown_by<toroni::error>([&] { bus->topics(); }).status() == TORONI_INVALID_ARGUMENT);
    CHECK(thrown_by<toroni::error>([&] { bus->reopened(); }).status() == TORONI_INVALID_ARGUMENT);
}

} // namespace

int main() {
    char path[] = "/dev/shm/toroni-test-cpp-XXXXXX";
    CHECK(mkdtemp(path) != nullptr);
    directory = path;
    std::atexit([] { std::filesystem::remove_all(directory); });
    const std::pair<const char *, void (*)()> tests[] = {
        {"handles_move_and_an_empty_one_returns_errors", handles_move_and_an_empty_one_returns_errors},
        {"errors_are_thrown_or_returned", errors_are_thrown_or_returned},
        {"each_call_has_a_form_that_throws_nothing", each_call_has_a_form_that_throws_nothing},
        {"bytes_convert_from_containers_and_texts", bytes_convert_from_containers_and_texts},
        {"messages_go_in_and_out_in_every_way", messages_go_in_and_out_in_every_way},
        {"an_exclusive_publisher_is_the_only_one", an_exclusive_publisher_is_the_only_one},
        {"an_exclusive_publisher_waits_with_a_limit", an_exclusive_publisher_waits_with_a_limit},
        {"an_inlet_publishes_what_comes_from_elsewhere", an_inlet_publishes_what_comes_from_elsewhere},
        {"losses_from_elsewhere_are_thrown_or_handled", losses_from_elsewhere_are_thrown_or_handled},
        {"values_come_before_the_stream", values_come_before_the_stream},
        {"values_are_read_without_a_subscriber", values_are_read_without_a_subscriber},
        {"a_missing_value_is_thrown_or_handled", a_missing_value_is_thrown_or_handled},
        {"an_inlet_waits_with_a_limit", an_inlet_waits_with_a_limit},
        {"an_inlet_can_wait_less_than_the_bus_says", an_inlet_can_wait_less_than_the_bus_says},
        {"publishers_learn_the_sequences_of_their_messages", publishers_learn_the_sequences_of_their_messages},
        {"a_subscriber_holds_messages", a_subscriber_holds_messages},
        {"parts_of_a_snapshot_outlive_it", parts_of_a_snapshot_outlive_it},
        {"settings_arrive", settings_arrive},
        {"an_exception_in_place_publishes_nothing_and_is_rethrown", an_exception_in_place_publishes_nothing_and_is_rethrown},
        {"a_range_ends_when_it_is_interrupted", a_range_ends_when_it_is_interrupted},
        {"iterators_meet_the_standard", iterators_meet_the_standard},
        {"losses_are_exact", losses_are_exact},
        {"old_messages_are_passed_over", old_messages_are_passed_over},
        {"a_thread_that_publishes_to_itself_gets_an_error", a_thread_that_publishes_to_itself_gets_an_error},
        {"runs_are_iterated_and_validated", runs_are_iterated_and_validated},
        {"a_run_is_not_mistaken_for_the_next_one", a_run_is_not_mistaken_for_the_next_one},
        {"routers_call_handlers_which_may_throw", routers_call_handlers_which_may_throw},
        {"a_router_throws_a_loss_after_the_exception_of_a_handler",
         a_router_throws_a_loss_after_the_exception_of_a_handler},
        {"a_loss_handler_may_try_to_replace_itself", a_loss_handler_may_try_to_replace_itself},
        {"topics_and_buses_are_listed_and_cleaned", topics_and_buses_are_listed_and_cleaned},
    };
    int passed = 0;
    for (const auto &[name, run] : tests) {
        std::cout << name << " ..." << std::flush;
        try {
            run();
        } catch (const std::exception &error) {
            std::cerr << name << ": " << error.what() << std::endl;
            return 1;
        }
        std::cout << " ok" << std::endl;
        ++passed;
    }
    std::cout << "test result: ok. " << passed << " passed; 0 failed" << std::endl;
}
