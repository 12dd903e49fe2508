/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Toroni: a message bus for the processes of one Linux machine, without a broker.
 *
 *     toroni_bus_open("demo", NULL, &bus);
 *     toroni_bus_publisher(bus, "plant/boiler/temperature", NULL, &publisher);
 *     toroni_publish(publisher, "351.2", 5);
 *
 *     toroni_bus_open("demo", NULL, &bus);
 *     toroni_bus_subscribe(bus, "plant/boiler/temperature", &subscriber);
 *     toroni_receive(subscriber, &message);
 *
 * What holds for everything here, unless a function says otherwise:
 *
 * Errors. A function that can fail returns a toroni_status, 0 (TORONI_OK) if it succeeded. Whoever fails has
 * set the text of toroni_error_message(), which says what happened and what to do; only TORONI_NO_MESSAGE leaves
 * that text as it was. Whoever fails has changed nothing else, but for this: TORONI_LAPPED moves the subscriber
 * behind the loss, and TORONI_CORRUPT behind a message that makes no sense; TORONI_INTERRUPTED uses the request up;
 * a burst has published what it says; a router has handled the messages in front of the error.
 * A result is written through the last argument, and only if the function succeeds; if it does not, a handle is
 * set to NULL, a descriptor to -1, and the count of a burst to what it published. NULL where something must be, a
 * string that is not UTF-8, or a value that this release does not know, is TORONI_INVALID_ARGUMENT. Functions that
 * return a number or a pointer return 0 or NULL then. No function unwinds or exits; a bug in the library that
 * shows itself as a panic becomes TORONI_PANIC. Where there is no memory left, the process is aborted.
 *
 * Ownership. Handles are made by functions that say so, and given back by the function with `_close` in its
 * name, once; closing NULL does nothing. A bus may be closed before its publishers, subscribers and routers:
 * they go on. Strings that are passed in are only read during the call, and end with 0; strings that are
 * returned belong to the handle they come from, and live as long; what a toroni_message points to lives until
 * the next call on its subscriber.
 *
 * Threads. A bus and a publisher may be used by any threads at the same time. All other handles belong to one
 * thread at a time; only toroni_subscriber_interrupt and toroni_router_interrupt may be called by others
 * meanwhile. A handle is closed when nobody else uses it.
 *
 * Processes. After fork() the child's handles answer TORONI_FORKED, and are to be closed or left; the child
 * opens the bus anew. Code that closes all descriptors (daemonising) must run before the bus is opened.
 *
 * Units. Lengths, positions and sizes are in bytes. Times are in nanoseconds, and their names end in _ns; a
 * limit of TORONI_FOREVER is none. A point in time is that of CLOCK_REALTIME, since 1970.
 *
 * Structures. Those with struct_size are made by their ..._INIT macro, and then changed; zeros are the defaults,
 * and what is called reserved stays 0. A later release may add fields at their end, and at the end of those that
 * the library hands out by pointer, of which nobody makes an array. All others stay as they are. So a program works
 * with later releases of the shared library of one soname: options that it does not know have their defaults. With
 * an earlier one, an option that is set and that the library does not know is TORONI_INVALID_ARGUMENT; but fields
 * that were added to what is handed out are not there, and must not be looked at.
 */
#ifndef TORONI_H
#define TORONI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ------------------------------------------------------------------------------------------- */

/* In C++, which wants to know it: a toroni_status may be any int. */
#ifdef __cplusplus
#define TORONI_ANY_INT : int
#else
#define TORONI_ANY_INT
#endif

/* What a function answers. Releases may add values, and do not change these. */
typedef enum toroni_status TORONI_ANY_INT {
    TORONI_OK = 0,
    TORONI_NO_MESSAGE = 1,            /* nothing is there, or came in time: no failure */
    TORONI_LAPPED = 2,                /* messages were lost; ..._last_loss tells how many; the next call goes on */
    TORONI_INTERRUPTED = 3,           /* by ..._interrupt; nothing is lost */
    TORONI_FULL = 4,                  /* a subscriber is slow, and the caller did not want to wait */
    TORONI_BUSY = 5,                  /* another publisher is at work (or a process that removes or checks the bus) */
    TORONI_TIMEOUT = 6,               /* not published in time */
    TORONI_ABORTED = 7,               /* the caller's toroni_fill gave the message up */
    TORONI_TOO_LONG = 8,              /* longer than the bus can carry */
    TORONI_REENTRANT = 9,             /* within toroni_fill, or a handler of the same router */
    TORONI_WOULD_WAIT_FOR_ITSELF = 10, /* full because of a subscriber that this thread reads, or made: receive first */
    TORONI_UNLINKED = 11,             /* the bus was removed: open it again */
    TORONI_LEASE_LOST = 12,           /* somebody closed the library's descriptors */
    TORONI_FORKED = 13,               /* the handle is the parent's */
    TORONI_CORRUPT = 14,              /* the shared memory holds what no correct process writes */

    TORONI_INVALID_ARGUMENT = 20,     /* NULL, not UTF-8, or an unknown value */
    TORONI_INVALID_NAME = 21,         /* of a bus */
    TORONI_INVALID_SETTING = 22,      /* outside its range */
    TORONI_INVALID_TOPIC = 23,
    TORONI_INVALID_PATTERN = 24,

    TORONI_NOT_FOUND = 30,            /* no such bus */
    TORONI_ALREADY_EXISTS = 31,       /* such a bus, where a new one was wanted */
    TORONI_PERMISSION_DENIED = 32,
    TORONI_NO_SPACE = 33,             /* bytes, files, or length of files */
    TORONI_BAD_DIRECTORY = 34,        /* of buses: missing, read-only, a link, not to be trusted */
    TORONI_FOREIGN_OWNER = 35,        /* TORONI_REQUIRE_OWNER */
    TORONI_UNSUPPORTED = 36,          /* by the file system, the machine or its limits */
    TORONI_INCOMPATIBLE = 37,         /* a bus of another release, machine or C library */
    TORONI_DAMAGED = 38,              /* files that are damaged, or no bus */
    TORONI_SETTING_MISMATCH = 39,     /* a required setting is another */
    TORONI_TOO_MANY_PARTICIPANTS = 40, /* all slots are taken */
    TORONI_POSITION_UNAVAILABLE = 41, /* TORONI_START_POSITION */
    TORONI_NOT_CHECKED_SINCE_BOOT = 42, /* a bus on a disk: open it once for publishing */
    TORONI_OUT_OF_REACH = 43,         /* across namespaces or C libraries */

    TORONI_OS = 50,                   /* any other answer of the system */
    TORONI_PANIC = 51,                /* a bug, caught: close the handle */
    TORONI_OTHER = 52                 /* an error that has no code yet */
} toroni_status;

/* The text of the calling thread's last error, "" if there was none. UTF-8. It lives until the thread's next
 * call that fails. Cannot fail. */
const char *toroni_error_message(void);

/* What a status means, as a sentence without particulars. Static. Cannot fail. */
const char *toroni_status_text(int status);

/* The version of the library, as "0.1.0". Static. Cannot fail. */
const char *toroni_version(void);

/* ---- a bus -------------------------------------------------------------------------------------------- */

/* No limit of time. */
#define TORONI_FOREVER UINT64_MAX

/* An opened bus. It costs no thread and no processor time. */
typedef struct toroni_bus toroni_bus;

/* What publishers do about slow subscribers. */
enum {
    TORONI_POLICY_DEFAULT = 0,   /* of a new bus: TORONI_POLICY_WAIT with 100 ms; of a publisher: the bus's */
    TORONI_POLICY_WAIT = 1,      /* wait at most limit_ns (TORONI_FOREVER: while the subscriber lives), then overwrite */
    TORONI_POLICY_OVERWRITE = 2, /* never wait */
    TORONI_POLICY_BOUNDED = 3    /* all publishers together wait at most budget_ns in each per_ns */
};

typedef struct toroni_policy {
    int kind; /* TORONI_POLICY_... */
    uint64_t limit_ns;
    uint64_t budget_ns;
    uint64_t per_ns;
} toroni_policy;

/* toroni_open_options.existence */
enum {
    TORONI_OPEN_OR_CREATE = 0,
    TORONI_OPEN_NEW = 1,     /* TORONI_ALREADY_EXISTS if it is there */
    TORONI_OPEN_EXISTING = 2 /* TORONI_NOT_FOUND if it is not */
};

/* toroni_open_options.lock: how writers exclude one another */
enum {
    TORONI_LOCK_LEASE = 0,
    TORONI_LOCK_ROBUST = 1 /* for publishers of more than a gigabyte; within one PID namespace */
};

/* toroni_open_options.notify: how sleeping subscribers are woken */
enum { TORONI_NOTIFY_FUTEX = 0, TORONI_NOTIFY_DATAGRAM = 1, TORONI_NOTIFY_MULTICAST = 2 };

/* toroni_open_options.flags */
enum {
    TORONI_FLAG_PERSISTENT = 1,  /* a new bus outlives clean-ups */
    TORONI_FLAG_HUGE_PAGES = 2,  /* the ring asks for pages of 2 MiB */
    TORONI_FLAG_PREFAULT = 4,    /* touch the whole ring now */
    TORONI_FLAG_LOCK_MEMORY = 8, /* mlock(2) */
    TORONI_FLAG_TIMESTAMPS = 16  /* messages published by this handle carry the time */
};

/* toroni_open_options.require: what an existing bus must have as it stands in the options; else it keeps what
 * it was created with, and TORONI_SETTING_MISMATCH tells */
enum {
    TORONI_REQUIRE_CAPACITY = 1,
    TORONI_REQUIRE_POLICY = 2,
    TORONI_REQUIRE_LOCK = 4,
    TORONI_REQUIRE_NOTIFY = 8,
    TORONI_REQUIRE_OWNER = 16 /* the bus, new or not, belongs to `owner`: TORONI_FOREIGN_OWNER */
};

typedef struct toroni_open_options {
    size_t struct_size;
    int existence;                /* TORONI_OPEN_... */
    int lock;                     /* TORONI_LOCK_... */
    int notify;                   /* TORONI_NOTIFY_... */
    uint8_t multicast_address[4]; /* 239.1.2.3 is {239, 1, 2, 3}; all 0, and port 0: made of the bus's id */
    uint16_t multicast_port;
    const char *directory;        /* of buses, not empty; NULL: as toroni_default_directory says */
    uint64_t capacity;            /* of the ring, a power of two from 64 KiB to 1 TiB; 0: 4 MiB */
    uint64_t topic_table_bytes;   /* a multiple of 4096; 0: 1 MiB */
    uint32_t max_publishers;      /* 1 to 1024 participants; 0: 128 */
    uint32_t max_subscribers;     /* 1 to 1024; 0: 128 */
    toroni_policy policy;
    uint32_t flags;               /* TORONI_FLAG_..., combined */
    uint32_t require;             /* TORONI_REQUIRE_..., combined */
    uint32_t mode;                /* permission bits of a new bus; 0: by the umask, each class both rights or none */
    uint32_t owner;               /* user of TORONI_REQUIRE_OWNER */
    const char *writers_group;    /* name or number of the group that may publish on a new bus; NULL: by mode */
    const char *readers_group;    /* of the group that may subscribe, and not publish */
    const char *participant_name; /* in `toroni info`; NULL: the program's */
} toroni_open_options;

#define TORONI_OPEN_OPTIONS_INIT                                                                            \
    {                                                                                                       \
        sizeof(toroni_open_options), 0, 0, 0, {0, 0, 0, 0}, 0, NULL, 0, 0, 0, 0, {0, 0, 0, 0}, 0, 0, 0, 0, \
            NULL, NULL, NULL                                                                                \
    }

/* Opens the bus of that name: 1 to 64 of A-Z a-z 0-9 . _ - and no dot in front. `options` may be NULL for the
 * defaults: open it, and create it if it is not there.
 * Gives a handle, for toroni_bus_close.
 * Errors: any from TORONI_INVALID_ARGUMENT on, TORONI_BUSY, TORONI_CORRUPT, TORONI_UNLINKED. */
int toroni_bus_open(const char *name, const toroni_open_options *options, toroni_bus **result);

/* Closes the handle. The bus stays, for others and for the next who opens it. */
void toroni_bus_close(toroni_bus *bus);

/* Its name, its directory, and its identity, which is random and new with each creation, as 32 hexadecimal
 * digits. They live as long as the handle. NULL if `bus` is NULL. */
const char *toroni_bus_name(const toroni_bus *bus);
const char *toroni_bus_path(const toroni_bus *bus);
const char *toroni_bus_id(const toroni_bus *bus);

/* toroni_reopened.outcome */
enum {
    TORONI_REOPENED_NOT = 0,    /* the bus is in memory, or was opened since the machine booted */
    TORONI_REOPENED_KEPT = 1,   /* its last publisher had closed it in order: its messages are as they were */
    TORONI_REOPENED_EMPTIED = 2 /* the machine went down while somebody published: it starts empty */
};

/* What became of a bus on a disk when it was opened for the first time since the machine booted. */
typedef struct toroni_reopened {
    int outcome;       /* TORONI_REOPENED_..., or -1: one that this release does not know */
    uint32_t reserved;
    uint64_t messages; /* that were kept and can still be read */
} toroni_reopened;

/* Whether this handle is the first of a bus on a disk since the machine booted, and what it found. */
int toroni_bus_reopened(const toroni_bus *bus, toroni_reopened *result);

/* ---- publishing --------------------------------------------------------------------------------------- */

/* Publishes on one topic. All publishers of one opened bus are one participant of it. */
typedef struct toroni_publisher toroni_publisher;

typedef struct toroni_publisher_options {
    size_t struct_size;
    toroni_policy policy; /* less patient than the bus's: TORONI_POLICY_OVERWRITE, or a shorter one of its kind */
    int to_descendants;   /* not 0: each call posts to the topic and to everything below it */
    uint32_t reserved;
} toroni_publisher_options;

#define TORONI_PUBLISHER_OPTIONS_INIT                          \
    {                                                          \
        sizeof(toroni_publisher_options), {0, 0, 0, 0}, 0, 0 \
    }

/* Some bytes; laid out as POSIX's struct iovec. `data` may be NULL if `length` is 0. */
typedef struct toroni_bytes {
    const void *data;
    size_t length;
} toroni_bytes;

/* Makes a publisher on a topic, a path such as "plant/boiler/temperature". `options` may be NULL.
 * Gives a handle, for toroni_publisher_close.
 * Errors: TORONI_INVALID_TOPIC, TORONI_INVALID_SETTING for the policy, TORONI_PERMISSION_DENIED,
 * TORONI_TOO_MANY_PARTICIPANTS, TORONI_OUT_OF_REACH, and those of toroni_bus_open. */
int toroni_bus_publisher(const toroni_bus *bus, const char *topic, const toroni_publisher_options *options,
                         toroni_publisher **result);

/* Closes the handle. */
void toroni_publisher_close(toroni_publisher *publisher);

/* Its topic; lives as long as the handle. NULL if `publisher` is NULL. */
const char *toroni_publisher_topic(const toroni_publisher *publisher);

/* Bytes of the largest message that it can publish. 0 if `publisher` is NULL. */
uint64_t toroni_publisher_largest_message(const toroni_publisher *publisher);

/* Publishes a message: `length` bytes, from none to the largest. They are copied before the function returns.
 * Waits for other publishers, and for slow subscribers as the policy says.
 * Nobody may write the bytes meanwhile. Those of a message in place are others' to write: what is passed on from
 * there goes through toroni_publish_in_place, with toroni_validate behind the last read in `fill`, which gives
 * the message up if it fails; or it is copied out, validated, and published then.
 * Errors: TORONI_TOO_LONG, TORONI_REENTRANT, TORONI_WOULD_WAIT_FOR_ITSELF, TORONI_UNLINKED, TORONI_LEASE_LOST,
 * TORONI_FORKED, TORONI_CORRUPT, TORONI_OS. */
int toroni_publish(const toroni_publisher *publisher, const void *data, size_t length);

/* As toroni_publish, and never waits. TORONI_FULL where that would wait for a subscriber, TORONI_BUSY where it
 * would wait for another publisher. */
int toroni_try_publish(const toroni_publisher *publisher, const void *data, size_t length);

/* As toroni_publish, and waits no longer than that: TORONI_TIMEOUT. */
int toroni_publish_timeout(const toroni_publisher *publisher, const void *data, size_t length,
                           uint64_t timeout_ns);

/* As toroni_publish, to the topic and to everything below it. */
int toroni_publish_to_descendants(const toroni_publisher *publisher, const void *data, size_t length);

/* Publishes `count` messages that become visible together, in a row: all, or with an error none. As
 * toroni_publish; TORONI_TOO_LONG if they are together longer than the largest message. */
int toroni_publish_batch(const toroni_publisher *publisher, const toroni_bytes *payloads, size_t count);

/* As toroni_publish_batch, and waits no longer than that: TORONI_TIMEOUT, and none is published. */
int toroni_publish_batch_timeout(const toroni_publisher *publisher, const toroni_bytes *payloads, size_t count,
                                 uint64_t timeout_ns);

/* Publishes `count` messages one by one, each visible at once, with one lock for all that there is room for.
 * As toroni_publish, but what was published before an error stays published: `published`, unless it is NULL,
 * tells how many. None if one is too long. */
int toroni_publish_burst(const toroni_publisher *publisher, const toroni_bytes *payloads, size_t count,
                         size_t *published);

/* As toroni_publish_burst, and waits no longer than that in all: TORONI_TIMEOUT. */
int toroni_publish_burst_timeout(const toroni_publisher *publisher, const toroni_bytes *payloads, size_t count,
                                 uint64_t timeout_ns, size_t *published);

/* Writes a message where subscribers will read it: `length` bytes at `data`, aligned to 8, which hold what an
 * older message left there. Returns 0 to publish it, anything else to give it up.
 * It runs under the writer lock, while all other publishers wait: it should be short. It must not use the bus
 * (TORONI_REENTRANT), keep `data`, leave by longjmp or an exception, or end its thread. */
typedef int (*toroni_fill)(void *data, size_t length, void *context);

/* Publishes a message that `fill` writes in place, without a copy. Whether `fill` is called at all depends on
 * the errors of toroni_publish; TORONI_ABORTED if it gave the message up, and nothing was published. */
int toroni_publish_in_place(const toroni_publisher *publisher, size_t length, toroni_fill fill, void *context);

/* ---- receiving ---------------------------------------------------------------------------------------- */

/* Receives what matches its patterns, in the one order of the bus. It belongs to one thread at a time, and
 * holds a slot of the bus until it is closed. */
typedef struct toroni_subscriber toroni_subscriber;

/* toroni_subscriber_options.start */
enum {
    TORONI_START_LATEST = 0,  /* what is published from now on */
    TORONI_START_OLDEST = 1,  /* the oldest message that is still in the ring */
    TORONI_START_POSITION = 2 /* the message at `position`: toroni_message.position, or next_position */
};

/* toroni_subscriber_options.wait: how blocking calls wait */
enum {
    TORONI_WAIT_BACKOFF = 0, /* poll briefly, then yield, then sleep */
    TORONI_WAIT_SPIN = 1,    /* poll all the time: lowest latency, a whole core */
    TORONI_WAIT_YIELD = 2,   /* poll, and let others run in between */
    TORONI_WAIT_BLOCK = 3    /* sleep at once: least processor time */
};

typedef struct toroni_subscriber_options {
    size_t struct_size;
    const char *const *patterns; /* pattern_count of them; without any it receives nothing */
    size_t pattern_count;
    int start;                   /* TORONI_START_... */
    int wait;                    /* TORONI_WAIT_... */
    uint64_t position;           /* of TORONI_START_POSITION; belongs to one bus: compare toroni_bus_id */
    int not_gating;              /* not 0: publishers do not wait for it */
    uint32_t reserved;
    const char *name;            /* in `toroni info`; NULL: the participant's */
} toroni_subscriber_options;

#define TORONI_SUBSCRIBER_OPTIONS_INIT                                    \
    {                                                                     \
        sizeof(toroni_subscriber_options), NULL, 0, 0, 0, 0, 0, 0, NULL \
    }

/* toroni_message.flags */
enum {
    TORONI_MESSAGE_TO_DESCENDANTS = 1, /* posted to everything below its topic, too */
    TORONI_MESSAGE_HAS_TIMESTAMP = 2
};

/* A message. What it points to lives until the next call on its subscriber, or until its handler returns. */
typedef struct toroni_message {
    const void *payload;   /* not NULL, also where it is empty; any alignment */
    size_t payload_length;
    const char *topic;     /* UTF-8, and NOT ended by 0: printf("%.*s", (int)m.topic_length, m.topic) */
    size_t topic_length;
    uint64_t sequence;     /* number among all messages of the bus, from 0 */
    uint64_t position;     /* in the stream of the bus */
    uint64_t next_position; /* of the message behind it */
    uint64_t timestamp_ns; /* when it was published, if the flag says so; else 0 */
    uint32_t flags;        /* TORONI_MESSAGE_..., combined */
    uint32_t reserved;
} toroni_message;

/* What was overwritten before it was read. */
typedef struct toroni_loss {
    uint64_t messages; /* of the whole bus, whatever their topics */
    uint64_t bytes;    /* of the stream */
} toroni_loss;

/* What a subscriber has seen since it subscribed. `received` is what was handed out, messages in place also that
 * toroni_validate found to be overwritten; what is lost in that way, lost_messages and lapses do not count. */
typedef struct toroni_subscriber_stats {
    uint64_t received;
    uint64_t lost_messages;
    uint64_t lapses;
    uint64_t reserved[5];
} toroni_subscriber_stats;

/* Subscribes to one pattern: `*` is one segment of a topic, `**` any number of them. Receives what is published
 * from now on.
 * Gives a handle, for toroni_subscriber_close.
 * Errors: TORONI_INVALID_PATTERN, TORONI_PERMISSION_DENIED, TORONI_TOO_MANY_PARTICIPANTS,
 * TORONI_NOT_CHECKED_SINCE_BOOT, and those of toroni_bus_open. */
int toroni_bus_subscribe(const toroni_bus *bus, const char *pattern, toroni_subscriber **result);

/* As toroni_bus_subscribe, with options. Also TORONI_POSITION_UNAVAILABLE. */
int toroni_bus_subscribe_with(const toroni_bus *bus, const toroni_subscriber_options *options,
                              toroni_subscriber **result);

/* Unsubscribes, and closes the handle. */
void toroni_subscriber_close(toroni_subscriber *subscriber);

/* Adds a pattern. A message that matches several is received once. TORONI_INVALID_PATTERN, TORONI_FORKED. */
int toroni_subscriber_add_pattern(toroni_subscriber *subscriber, const char *pattern);

/* Receives the next message, and waits for it. A signal does not end the wait: toroni_subscriber_interrupt does,
 * also when a signal handler calls it.
 * Errors: TORONI_LAPPED, after which the next call goes on behind the loss; TORONI_CORRUPT, after which it goes on
 * behind a message that made no sense, if it was one; TORONI_INTERRUPTED, TORONI_UNLINKED, TORONI_FORKED,
 * TORONI_OS. */
int toroni_receive(toroni_subscriber *subscriber, toroni_message *message);

/* As toroni_receive, and does not wait: TORONI_NO_MESSAGE where all has been read. */
int toroni_try_receive(toroni_subscriber *subscriber, toroni_message *message);

/* As toroni_receive, and waits no longer than that: TORONI_NO_MESSAGE. */
int toroni_receive_timeout(toroni_subscriber *subscriber, uint64_t timeout_ns, toroni_message *message);

/* Hands out the next message where it lies in shared memory, without a copy; waits at most `timeout_ns`, which
 * may be 0 or TORONI_FOREVER. It is the first of a run: toroni_next_in_place hands out those that follow.
 * All messages of a run stay until any other call on the subscriber ends it, but for toroni_validate,
 * toroni_subscriber_run_number, toroni_subscriber_slot and toroni_subscriber_last_loss.
 *
 * A publisher may overwrite them while they are read. So nothing that was read counts, lengths and numbers in
 * the payload included, until toroni_validate has answered TORONI_OK behind the last read. topic, sequence,
 * position and the lengths in toroni_message can be relied upon; timestamp_ns as the payload only.
 * To the compiler these bytes are memory that nobody else writes: read each once (memcpy out what is
 * decided upon), and do not trust what was read before the validation to be the same behind it. Where the policy
 * is TORONI_POLICY_WAIT with TORONI_FOREVER, and the subscriber gates, they never change.
 * Errors as toroni_receive. */
int toroni_receive_in_place(toroni_subscriber *subscriber, uint64_t timeout_ns, toroni_message *message);

/* The next message of the run; TORONI_NO_MESSAGE at its end, when toroni_receive_in_place begins another. */
int toroni_next_in_place(toroni_subscriber *subscriber, toroni_message *message);

/* Whether all that was read so far of the run is what was published; else TORONI_LAPPED, with all messages of the run
 * as lost. TORONI_INVALID_ARGUMENT if there is no run. */
int toroni_validate(toroni_subscriber *subscriber);

/* Which run that is: 1 is the subscriber's first. 0 if it is in none, or NULL. The two functions above are about the
 * run that the subscriber is in now: who keeps a message of a run, as toroni::run of C++ does, keeps this number
 * beside it, and sees by it whether another has begun. */
uint64_t toroni_subscriber_run_number(const toroni_subscriber *subscriber);

/* What the last TORONI_LAPPED of this subscriber was about; zeros if there was none. */
int toroni_subscriber_last_loss(const toroni_subscriber *subscriber, toroni_loss *loss);

/* Ends the blocking call that the subscriber is in, in another thread or below a signal handler, with
 * TORONI_INTERRUPTED; if it is in none, the next one that would wait: not toroni_try_receive, nor a call with a
 * time-out of 0. Requests are not counted. The call ends at once as a rule, and within a quarter of a second
 * always.
 * Async-signal-safe. Any thread may call it, as long as the subscriber is not closed. Cannot fail. */
void toroni_subscriber_interrupt(const toroni_subscriber *subscriber);

/* A descriptor for poll, epoll or any event loop, readable when there may be messages; made at the first call,
 * and closed with the subscriber. Call toroni_try_receive until it answers TORONI_NO_MESSAGE, then wait for the
 * descriptor, and so on. Do not read from it. TORONI_FORKED, and TORONI_OS if there are no descriptors left. */
int toroni_subscriber_fd(toroni_subscriber *subscriber, int *fd);

/* Position of the next message that it looks at; and bytes of the stream that it has not read yet. 0 if
 * `subscriber` is NULL. */
uint64_t toroni_subscriber_position(toroni_subscriber *subscriber);
uint64_t toroni_subscriber_lag_bytes(toroni_subscriber *subscriber);

/* A slot that is none. */
#define TORONI_NO_SLOT UINT32_MAX

/* Number of its slot, as toroni_subscriber_info and `toroni info` show it. TORONI_NO_SLOT if `subscriber` is NULL.
 * It ends no run. */
uint32_t toroni_subscriber_slot(const toroni_subscriber *subscriber);

/* What it has seen so far. */
int toroni_subscriber_get_stats(toroni_subscriber *subscriber, toroni_subscriber_stats *stats);

/* ---- a router ----------------------------------------------------------------------------------------- */

/* One subscriber that calls functions. It belongs to one thread at a time, which runs them. */
typedef struct toroni_router toroni_router;

/* Called with a message, which lives until it returns. It may publish, but not use or close its router
 * (TORONI_REENTRANT), except for toroni_router_interrupt, nor leave by longjmp or an exception. */
typedef void (*toroni_handler)(const toroni_message *message, void *context);

/* Called where messages were lost; as toroni_handler. */
typedef void (*toroni_loss_handler)(const toroni_loss *loss, void *context);

/* Makes a router without handlers. Gives a handle, for toroni_router_close. Errors as toroni_bus_subscribe. */
int toroni_bus_router(const toroni_bus *bus, toroni_router **result);

/* Closes the handle. Within a handler it does nothing. */
void toroni_router_close(toroni_router *router);

/* Calls `handler` with `context` for each message that matches the pattern and is received from now on; all
 * handlers that match, in the order in which they were added. `context` stays the caller's, and must live as
 * long as the router. TORONI_INVALID_PATTERN, TORONI_FORKED. */
int toroni_router_on(toroni_router *router, const char *pattern, toroni_handler handler, void *context);

/* Calls `handler` in place of answering TORONI_LAPPED. */
int toroni_router_on_lapped(toroni_router *router, toroni_loss_handler handler, void *context);

/* Handles all messages that are there. `handled`, unless it is NULL, tells how many. Errors as toroni_receive, which
 * leave `handled` as it was, although messages in front of them were handled. */
int toroni_router_poll(toroni_router *router, size_t *handled);

/* Waits for the next message, at most so long, and handles it; TORONI_NO_MESSAGE if none came. Errors as
 * toroni_receive. */
int toroni_router_run_once(toroni_router *router, uint64_t timeout_ns);

/* Handles messages until there is an error, such as TORONI_INTERRUPTED, which it returns. */
int toroni_router_run(toroni_router *router);

/* As toroni_subscriber_last_loss. */
int toroni_router_last_loss(const toroni_router *router, toroni_loss *loss);

/* As toroni_subscriber_interrupt; it ends toroni_router_run, too, between two messages. A handler may call it. */
void toroni_router_interrupt(const toroni_router *router);

/* As toroni_subscriber_fd: when it is readable, call toroni_router_poll. */
int toroni_router_fd(toroni_router *router, int *fd);

/* As those of a subscriber. 0, 0 and TORONI_NO_SLOT also within a handler (TORONI_REENTRANT). */
uint64_t toroni_router_position(const toroni_router *router);
uint64_t toroni_router_lag_bytes(const toroni_router *router);
uint32_t toroni_router_slot(const toroni_router *router);

/* What its subscriber has seen so far. */
int toroni_router_get_stats(const toroni_router *router, toroni_subscriber_stats *stats);

/* ---- who is there ------------------------------------------------------------------------------------- */

/* A snapshot of a bus. What it points to lives as long. */
typedef struct toroni_stats toroni_stats;

typedef struct toroni_bus_stats {
    uint64_t capacity;
    uint64_t topic_table_bytes;
    uint64_t tail;            /* bytes published since it was created */
    uint64_t sequence;        /* messages published since it was created */
    uint64_t oldest_position; /* of the oldest message that can still be read */
    uint64_t created_ns;
    toroni_policy policy;     /* kind -1: one that this release does not know */
    int lock;                 /* TORONI_LOCK_..., or -1 */
    int notify;               /* TORONI_NOTIFY_..., or -1 */
    uint32_t topics;          /* names in the table */
    uint32_t max_publishers;
    uint32_t max_subscribers;
    int persistent;
    int on_disk;
    int sees_publishers;      /* 0: this process may not look at them, and there are none below */
    int sees_subscribers;
    uint8_t multicast_address[4]; /* of TORONI_NOTIFY_MULTICAST, as in toroni_open_options; all 0, and port 0: */
    uint16_t multicast_port;      /* made of the bus's id */
} toroni_bus_stats;

/* Who holds the writer lock, and so everybody up, if it does so for long. */
typedef struct toroni_lock_owner {
    uint32_t slot; /* among the publishers; TORONI_NO_SLOT of TORONI_LOCK_ROBUST */
    uint32_t pid;  /* in its own PID namespace; of TORONI_LOCK_ROBUST its thread; 0 if that is not known */
    int alive;     /* -1: this process cannot tell */
    int stopped;   /* SIGSTOP: not dead, and yet everybody waits for it */
} toroni_lock_owner;

/* A publishing participant. */
typedef struct toroni_publisher_info {
    const char *name;
    uint32_t slot;
    uint32_t pid;        /* in its own PID namespace */
    int alive;
    int stopped;         /* SIGSTOP */
    uint64_t messages;
    uint64_t bytes;      /* of the stream, for them */
    uint64_t waits;      /* for slow subscribers */
    uint64_t waited_ns;  /* in all */
    uint64_t overwrites; /* of what a slow subscriber had not read */
    uint64_t wakes;      /* sent */
    uint64_t started_ns; /* when it opened the bus for publishing */
    int same_pid_namespace; /* 0: its pid is of another PID namespace than the caller's */
} toroni_publisher_info;

/* A subscriber. */
typedef struct toroni_subscriber_info {
    const char *name;
    uint32_t slot;
    uint32_t pid;
    int alive;
    int stopped;
    int gating;             /* publishers wait for it */
    int lapped_now;         /* overtaken since it last told its position */
    uint64_t position;      /* up to where it has read, as far as it told */
    uint64_t lag_bytes;     /* from there to the end */
    uint64_t received;
    uint64_t lost_messages;
    uint64_t lapses;
    uint64_t started_ns;    /* when it subscribed */
    int same_pid_namespace; /* as in toroni_publisher_info */
    int patterns_truncated; /* 1: it has more patterns than its slot has room for; -1: they cannot be read */
    const char *const *patterns; /* those that show, NULL if none; see toroni_matches */
    size_t pattern_count;
} toroni_subscriber_info;

/* Takes a snapshot; it disturbs nobody, and needs permission to read the ring. Gives a handle, for
 * toroni_stats_close. Errors as toroni_bus_open. */
int toroni_bus_take_stats(const toroni_bus *bus, toroni_stats **result);

/* Gives it back. */
void toroni_stats_close(toroni_stats *stats);

/* The bus in it; who held its writer lock at that moment, NULL if nobody did; its participants, by an index from 0:
 * NULL beyond the last one; the files in its `sockets/`, each <slot>.<generation> of a subscriber. NULL and 0 if
 * `stats` is NULL. */
const toroni_bus_stats *toroni_stats_bus(const toroni_stats *stats);
const toroni_lock_owner *toroni_stats_lock_owner(const toroni_stats *stats);
size_t toroni_stats_publisher_count(const toroni_stats *stats);
const toroni_publisher_info *toroni_stats_publisher(const toroni_stats *stats, size_t index);
size_t toroni_stats_subscriber_count(const toroni_stats *stats);
const toroni_subscriber_info *toroni_stats_subscriber(const toroni_stats *stats, size_t index);
size_t toroni_stats_socket_count(const toroni_stats *stats);
const char *toroni_stats_socket(const toroni_stats *stats, size_t index);

/* ---- topics ------------------------------------------------------------------------------------------- */

/* Whether a pattern asks for a message on a topic: writes 1 or 0. The second: for one that is posted to the topic and
 * to everything below it. TORONI_INVALID_PATTERN, TORONI_INVALID_TOPIC. */
int toroni_matches(const char *pattern, const char *topic, int *result);
int toroni_matches_descendants(const char *pattern, const char *topic, int *result);

/* The topics of a bus at one moment, by name. What it points to lives as long. */
typedef struct toroni_topics toroni_topics;

/* What the ring holds of one topic. */
typedef struct toroni_topic_info {
    const char *name;
    uint64_t messages; /* that can still be read; 0 for a topic that has not been used for long */
    uint64_t bytes;    /* of their payloads */
} toroni_topic_info;

/* Lists the topics; it reads the whole ring, disturbs nobody, and needs permission to read it. Gives a handle, for
 * toroni_topics_close. Errors as toroni_bus_open. */
int toroni_bus_take_topics(const toroni_bus *bus, toroni_topics **result);

/* Gives it back. */
void toroni_topics_close(toroni_topics *topics);

/* The topics, by an index from 0: NULL beyond the last one. 0 and NULL if `topics` is NULL. */
size_t toroni_topics_count(const toroni_topics *topics);
const toroni_topic_info *toroni_topics_at(const toroni_topics *topics, size_t index);

/* ---- buses as files ----------------------------------------------------------------------------------- */

/* What is here needs no opened bus, and may be called by any threads at the same time. */

/* The buses of a directory at one moment, by name. What it points to lives as long. */
typedef struct toroni_bus_list toroni_bus_list;

typedef struct toroni_bus_entry {
    const char *name;
    const char *path;    /* its directory */
    const char *problem; /* why it cannot be opened; NULL: it can, if its rights allow it */
    uint64_t capacity;   /* of the ring; 0 if its header cannot be read */
    int in_use;          /* 1: some process has it open; 0: none has; -1: this process cannot see that */
    int persistent;      /* not 0: toroni_clean leaves it alone */
} toroni_bus_entry;

/* The directory of buses where none is given: $TORONI_DIR if it is set and not empty, or else /dev/shm/toroni. It lives
 * until the thread's next call of this function. */
const char *toroni_default_directory(void);

/* Lists the buses below `directory`; NULL: the default one. A directory that is not there has
 * none. Gives a handle, for toroni_bus_list_close.
 * Errors: TORONI_INVALID_SETTING if `directory` is empty, TORONI_PERMISSION_DENIED, TORONI_BAD_DIRECTORY, TORONI_OS. */
int toroni_list_buses(const char *directory, toroni_bus_list **result);

/* Gives it back. */
void toroni_bus_list_close(toroni_bus_list *list);

/* The buses, by an index from 0: NULL beyond the last one. 0 and NULL if `list` is NULL. */
size_t toroni_bus_list_count(const toroni_bus_list *list);
const toroni_bus_entry *toroni_bus_list_at(const toroni_bus_list *list, size_t index);

/* flags of toroni_clean */
enum {
    TORONI_CLEAN_DRY_RUN = 1,   /* only report what would be done */
    TORONI_CLEAN_PERSISTENT = 2 /* the bus of that name also if it is persistent; `name` must be there */
};

/* What toroni_clean did, or would do. What it points to lives as long. */
typedef struct toroni_clean_report toroni_clean_report;

/* toroni_clean_action.kind */
enum {
    TORONI_CLEANED_SLOT = 0,    /* a slot was freed, whose owner died */
    TORONI_CLEANED_SOCKET = 1,  /* the socket of a subscriber was removed that died */
    TORONI_CLEANED_BUS = 2,     /* a bus was removed that nobody has open */
    TORONI_CLEANED_LEFTOVER = 3 /* a bus was removed whose creator, or cleaner, died half-way */
};

typedef struct toroni_clean_action {
    int kind;         /* TORONI_CLEANED_..., or -1: one that this release does not know */
    uint32_t slot;    /* of TORONI_CLEANED_SLOT */
    const char *bus;  /* its name, of TORONI_CLEANED_SLOT; else NULL */
    const char *file; /* "publishers" or "readers", of TORONI_CLEANED_SLOT; else NULL */
    const char *path; /* what was removed; NULL of TORONI_CLEANED_SLOT */
    const char *text; /* all of this, as a sentence for people */
} toroni_clean_action;

/* What was left alone although it may be rubbish. */
typedef struct toroni_clean_skip {
    const char *path;
    const char *why;
} toroni_clean_skip;

/* Cleans up after the dead below `directory` (as toroni_list_buses): frees the slots and sockets of participants that
 * died, and removes buses that no process has open, unless they are persistent. All of them, or, with a `name`, that
 * one. A bus whose header is damaged cannot say whether it is persistent: it is removed only with its name. A bus that
 * anybody has open is never removed, this process included. `flags` is TORONI_CLEAN_..., combined, or 0.
 * Gives a handle, for toroni_clean_report_close. What could not be cleaned is no error: the report says that it was
 * left alone, and why.
 * Errors: TORONI_INVALID_NAME, TORONI_INVALID_SETTING if `directory` is empty, TORONI_NOT_FOUND if there is no bus of
 * that name, TORONI_PERMISSION_DENIED, TORONI_BAD_DIRECTORY, TORONI_OS. */
int toroni_clean(const char *directory, const char *name, uint32_t flags, toroni_clean_report **result);

/* Gives it back. */
void toroni_clean_report_close(toroni_clean_report *report);

/* What was done, in that order, and what was left alone, by an index from 0: NULL beyond the last one. 0 and NULL if
 * `report` is NULL. */
size_t toroni_clean_report_action_count(const toroni_clean_report *report);
const toroni_clean_action *toroni_clean_report_action(const toroni_clean_report *report, size_t index);
size_t toroni_clean_report_skip_count(const toroni_clean_report *report);
const toroni_clean_skip *toroni_clean_report_skip(const toroni_clean_report *report, size_t index);

#ifdef __cplusplus
}
#endif

#endif
