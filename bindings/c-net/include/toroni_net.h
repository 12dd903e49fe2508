/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Toroni between hosts, for a program without a bus: it sends messages to the network and receives them itself.
 *
 *     toroni_net_open_file("plant.toml", &direct);
 *     toroni_net_send(direct, "plant/boiler", "351.2", 5, TORONI_NET_FOREVER);
 *     toroni_net_receive(direct, &message, 1000000000);
 *
 * Use it where one program of a host takes part. Where several do, a bus and `toroni node` cost less. docs/network.md and
 * docs/node-configuration.md describe the configuration, which is that of a node: one [[send]], any number of [[receive]].
 * Give the program a `name` of its own in [node], different from that of the host's node.
 *
 * Errors. Each function that can fail returns a toroni_net_status. If that is not TORONI_NET_OK or
 * TORONI_NET_NO_MESSAGE, toroni_net_error_message() says what happened and what to do. A result is cleared on failure:
 * a descriptor is -1, everything else is zeros.
 *
 * Threads. One thread at a time uses a handle. The library starts no thread: what was sent is repaired, and what is received
 * is acknowledged, while the program is in one of the functions. A program that waits for other things watches the
 * descriptor of toroni_net_fd, and calls toroni_net_receive with a timeout of 0, or toroni_net_turn, when it is readable.
 *
 * Units. Lengths are in bytes. Times are in nanoseconds, and their names end in _ns.
 */
#ifndef TORONI_NET_H
#define TORONI_NET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return. Later releases may add values, and do not change these. */
enum {
    TORONI_NET_OK = 0,
    TORONI_NET_NO_MESSAGE = 1,             /* none arrived in time; not a failure */
    TORONI_NET_LOST = 2,                   /* messages were lost: toroni_net_last_lost says which; call again */
    TORONI_NET_FULL = 3,                   /* the stream's rate did not allow the message in time; it was not sent */
    TORONI_NET_INVALID_ARGUMENT = 10,      /* NULL, or not UTF-8 */
    TORONI_NET_INVALID_CONFIGURATION = 11, /* the text says for each error where it is */
    TORONI_NET_INVALID_TOPIC = 12,
    TORONI_NET_TOO_LONG = 13,              /* the message is longer than `message_max` */
    TORONI_NET_TOO_MANY_TOPICS = 14,       /* the stream has named as many as its table takes */
    TORONI_NET_NO_STREAM = 15,             /* the configuration has no [[send]] */
    TORONI_NET_ENDED = 16,                 /* after toroni_net_end */
    TORONI_NET_COLLISION = 17,             /* another process of the realm has the same source id */
    TORONI_NET_OS = 20,                    /* the operating system refused something */
    TORONI_NET_PANIC = 21                  /* a bug in the library, which was caught: close the handle */
};

#define TORONI_NET_FOREVER UINT64_MAX

/* toroni_net_message.flags */
enum { TORONI_NET_TO_DESCENDANTS = 1, TORONI_NET_HAS_TIMESTAMP = 2 };

/* toroni_net_lost.bound: how exact the number of messages is */
enum { TORONI_NET_BOUND_EXACT = 0, TORONI_NET_BOUND_AT_LEAST = 1, TORONI_NET_BOUND_AT_MOST = 2 };

/* Who has sent a message. */
typedef struct toroni_net_flow {
    uint32_t source;  /* the node or program */
    uint32_t session; /* its life: later ones are greater */
    uint32_t series;  /* what its numbers count */
    uint16_t stream;
    uint16_t reserved;
} toroni_net_flow;

/* A message. What it points to lives until the next call on the handle. Strings do not end with 0. */
typedef struct toroni_net_message {
    const void *payload;
    size_t payload_length;
    const char *topic;
    size_t topic_length;
    uint64_t number;       /* its place in the series */
    uint64_t timestamp_ns; /* when it was published, if TORONI_NET_HAS_TIMESTAMP is set */
    toroni_net_flow flow;
    uint32_t flags;
    uint32_t reserved;
} toroni_net_message;

/* Messages that were lost. */
typedef struct toroni_net_lost {
    uint64_t messages; /* how many */
    uint64_t from;     /* their numbers are at least this, */
    uint64_t until;    /* and below this; UINT64_MAX if that is not known */
    toroni_net_flow flow;
    int bound;         /* TORONI_NET_BOUND_... */
    int reason;        /* TORONI_REASON_... of toroni.h: 1 gone, 2 budget, 3 memory, 4 burst, 5 jump, 6 restart, 7 silent,
                          8 topic, 9 too long, 10 overtaken, 11 diverged */
} toroni_net_lost;

typedef struct toroni_net_direct toroni_net_direct;

/* Opens what the text of a configuration, in TOML, describes. Its relative paths begin at the working directory.
 * Creates a handle: close it with toroni_net_close. */
int toroni_net_open(const char *configuration, toroni_net_direct **result);
/* Does what toroni_net_open does with the text of a file, whose relative paths begin at its directory. */
int toroni_net_open_file(const char *path, toroni_net_direct **result);
/* Closes the handle at once. Call toroni_net_end first, or others may miss what was sent last. NULL is allowed. */
void toroni_net_close(toroni_net_direct *direct);

/* Sends a message. If the stream's rate does not allow it yet, waits until it does, at most `timeout_ns`. */
int toroni_net_send(toroni_net_direct *direct, const char *topic, const void *payload, size_t length,
                    uint64_t timeout_ns);
/* Returns the next message. Waits for it at most `timeout_ns`. TORONI_NET_LOST stands at the place of what is missing. */
int toroni_net_receive(toroni_net_direct *direct, toroni_net_message *message, uint64_t timeout_ns);
/* Reports what the last TORONI_NET_LOST of the handle stands for. All zeros if there was none. */
int toroni_net_last_lost(const toroni_net_direct *direct, toroni_net_lost *lost);

/* Does what is due: reads, repairs, reports. A program that only sends calls it when the descriptor is readable. */
int toroni_net_turn(toroni_net_direct *direct);
/* Returns a descriptor for poll(2) that is readable when there is something to do. It belongs to the handle. */
int toroni_net_fd(const toroni_net_direct *direct, int *fd);
/* Returns how many streams of others have begun; messages come from these. One that has ended counts until another one needs
 * its place. 0 if `direct` is NULL. */
size_t toroni_net_streams(const toroni_net_direct *direct);
/* Ends the stream, and repairs what others miss until no receiver can ask any more (after `generation`), at most `linger_ns`. */
int toroni_net_end(toroni_net_direct *direct, uint64_t linger_ns);

/* Returns the text of the last error of this thread. It lives until the thread's next error. Never NULL. */
const char *toroni_net_error_message(void);
/* Returns the release of the library, such as "0.1.0". */
const char *toroni_net_version(void);

#ifdef __cplusplus
}
#endif

#endif
