// The subscriber of the conformance test in C++; bindings/conformance/README.md describes its arguments and output.

#include "common.hpp"

#include <poll.h>

namespace {

class printer {
public:
    printer(std::uint64_t wanted, bool asks) : wanted_(wanted), was_current_(!asks) {}
    bool is_done() const { return received_ >= wanted_; }

    void message(const toroni::message &message, std::uint64_t hash) {
        const char *const what = message.is_cleared() ? "cleared" : message.is_retained() ? "value" : "message";
        show(what, message, hash);
        ++received_;
        if (message.topic() == "end") wanted_ = received_;
    }
    void lost(toroni::loss loss) {
        std::cout << "lost\t" << std::dec << loss.messages << '\t' << loss.bytes << std::endl;
    }

    // Writes that the subscriber is current when it first is.
    void check(const toroni::subscriber &subscriber) {
        if (was_current_ || !subscriber.is_current()) return;
        was_current_ = true;
        std::cout << "current" << std::endl;
    }

    void gone(const toroni::lost_messages &lost) {
        std::cout << std::dec << "gone\t";
        show(lost.from);
        std::cout << '\t' << lost.until << '\t' << lost.messages << '\t' << lost.bound << '\t' << lost.reason << '\t';
        for (std::size_t i = 0; i < lost.scope.size(); ++i) std::cout << (i == 0 ? "" : ",") << lost.scope[i];
        std::cout << std::endl;
    }

private:
    std::uint64_t wanted_, received_ = 0;
    bool was_current_;
};

// Receives until all expected messages have arrived. Throws if messages were lost.
void receive(toroni::subscriber &subscriber, const std::string &mode, printer &out) {
    if (mode == "receive" || mode == "newest") {
        out.check(subscriber);
        if (out.is_done()) return;
        for (const toroni::message message : subscriber) {
            out.message(message, hash(message.payload()));
            if (out.is_done()) return;
            out.check(subscriber);
        }
    }
    while (!out.is_done()) {
        out.check(subscriber);
        if (mode == "timeout") {
            if (const auto message = subscriber.receive_for(std::chrono::milliseconds(100)))
                out.message(*message, hash(message->payload()));
        } else if (mode == "in-place") {
            const toroni::run run = subscriber.receive_in_place();
            for (const toroni::message message : run) {
                const std::uint64_t hashed = hash(message.payload());
                run.validate();
                out.message(message, hashed);
                if (out.is_done()) return;
            }
        } else if (mode == "hold") {
            const toroni::message message = subscriber.receive();
            const std::uint64_t sequence = message.sequence();
            out.message(message, hash(message.payload()));
            subscriber.hold(sequence < 20 ? 0 : sequence - 20);
        } else if (mode == "descriptor") {
            if (const auto message = subscriber.try_receive()) {
                out.message(*message, hash(message->payload()));
            } else {
                pollfd watched{subscriber.fd(), POLLIN, 0};
                poll(&watched, 1, -1);
            }
        } else {
            throw std::invalid_argument("MODE is receive, timeout, in-place or descriptor, also after retained-, or "
                                        "hold or newest");
        }
    }
}

void show_held(const toroni::subscriber &subscriber) {
    const auto sequence = subscriber.held();
    std::cout << "held\t" << (sequence ? std::to_string(*sequence) : "-") << std::endl;
}

void wait_for_line() {
    std::string line;
    if (!std::getline(std::cin, line)) throw std::runtime_error("no line on stdin");
}

void subscribe(const std::vector<std::string> &arguments) {
    if (arguments.size() != 4) throw std::invalid_argument("subscribe BUS PATTERN COUNT MODE");
    toroni::open_options options;
    options.existence = TORONI_OPEN_EXISTING;
    const toroni::bus bus(arguments[0], options);
    toroni::subscriber_options subscribing;
    subscribing.patterns = {arguments[1]};
    std::string mode = arguments[3];
    const std::string retained = "retained-";
    if (mode.compare(0, retained.size(), retained) == 0) {
        mode.erase(0, retained.size());
        subscribing.retained = true;
    }
    if (mode == "newest") {
        subscribing.after_loss = TORONI_CONTINUE_NEWEST;
        subscribing.max_age = std::chrono::hours(1);
    }
    toroni::subscriber subscriber(bus, subscribing);
    std::cout << "ready" << std::endl;
    wait_for_line();

    printer out(std::stoull(arguments[2]), subscribing.retained);
    while (!out.is_done()) {
        try {
            receive(subscriber, mode, out);
        } catch (const toroni::lapped &lapped) {
            out.lost(lapped.loss());
        } catch (const toroni::lost &lost) {
            out.gone(lost.messages());
        } catch (const toroni::value_missing &missing) {
            show(missing.value());
        }
    }
    if (mode == "hold") {
        show_held(subscriber);
        wait_for_line();
        subscriber.release_hold();
        show_held(subscriber);
        wait_for_line();
    }
    const auto seen = subscriber.stats();
    std::cout << "done\t" << std::dec << seen.received << '\t' << seen.lost_messages << '\t' << seen.lapses
              << std::endl;
}

} // namespace

int main(int count, char **arguments) {
    try {
        subscribe({arguments + 1, arguments + count});
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
