/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Toroni: a message bus for the processes of one Linux machine, without a broker.
 *
 * One process publishes:
 *
 *     toroni_bus_open("demo", NULL, &bus);
 *     toroni_bus_publisher(bus, "plant/boiler/temperature", NULL, &publisher);
 *     toroni_publish(publisher, "351.2", 5);
 *
 * Another one receives:
 *
 *     toroni_bus_open("demo", NULL, &bus);
 *     toroni_bus_subscribe(bus, "plant/boiler/temperature", &subscriber);
 *     toroni_receive(subscriber, &message);
 *
 * The following holds for all functions, unless the comment on a function says otherwise.
 *
 * Errors. A function that can fail returns a toroni_status. On success it returns TORONI_OK, which is 0. On failure
 * it also sets the text of toroni_error_message(), which says what happened and what to do. TORONI_NO_MESSAGE is not
 * a failure and leaves that text unchanged.
 *
 * A failed call has no other effect, with these exceptions:
 *   - TORONI_LAPPED moves the subscriber past the messages that it missed, TORONI_LOST past the loss, and
 *     TORONI_VALUE_MISSING past the value.
 *   - TORONI_CORRUPT moves the subscriber past a message that is not valid.
 *   - TORONI_INTERRUPTED uses up the request to interrupt.
 *   - A burst, and toroni_inlet_publish, leave as many messages published as they report.
 *   - A router has handled the messages before the error.
 *
 * Results. A function writes its result through its last argument. If it does not return TORONI_OK, it clears the
 * result: it sets a descriptor to -1, and everything else to zeros, so a pointer is NULL. TORONI_NO_MESSAGE clears the
 * message, too. The only exception is a count, which says how many messages a burst or an inlet published, or
 * toroni_router_poll handled, before the failure.
 *
 * TORONI_INVALID_ARGUMENT means that a required pointer is NULL, that a string is not UTF-8, or that this release
 * does not know a value. Functions that return a number or a pointer return 0 or NULL instead.
 *
 * No function unwinds the stack or exits. If a bug in the library causes a panic, the function returns TORONI_PANIC.
 * If no memory is left, the process aborts.
 *
 * Ownership. Functions that create a handle say so. Close each handle once, with the function whose name ends in
 * `_close`; closing NULL does nothing. A bus may be closed before its publishers, exclusive publishers, inlets,
 * subscribers and routers, which keep working. Strings end with 0. The library reads strings that are passed in only
 * during the call. Strings that it returns belong to the handle they come from, and live as long as that handle. What a
 * toroni_message points to lives until the next call on its subscriber.
 *
 * Threads. Any number of threads may use a bus, a publisher, an inlet, a topic of an inlet or commands at the same time.
 * Every other handle belongs to one thread at a time; other threads may only call toroni_subscriber_interrupt and
 * toroni_router_interrupt on it. Close a handle only when no other thread uses it.
 *
 * Processes. In the child of a fork(), the handles of the parent return TORONI_FORKED. The child may close or keep
 * them, and must open the bus again. A program that closes all descriptors, for example to become a daemon, must do so
 * before it opens a bus.
 *
 * Units. Lengths, positions and sizes are in bytes. Times are in nanoseconds, and their names end in _ns. A timeout or
 * limit of TORONI_FOREVER means no limit. A point in time counts from 1970 (CLOCK_REALTIME).
 *
 * Structures. Initialise a structure that has a struct_size with its ..._INIT macro, and then set the fields you need.
 * Zeros are the defaults. A field called reserved must stay 0. A later release may add fields at the end of these
 * structures, and at the end of structures to which the library returns a pointer; do not make arrays of the latter.
 * All other structures never change. So a program also works with later releases of the shared library that have the
 * same soname: options that the program does not know have their defaults. With an earlier release, a call that sets an
 * option that the library does not know returns TORONI_INVALID_ARGUMENT, and fields that were added to returned
 * structures do not exist and must not be read.
 */
#ifndef TORONI_H
#define TORONI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ------------------------------------------------------------------------------------------- */

/* In C++ this allows a toroni_status to have any int as its value, such as one of a later release. */
#ifdef __cplusplus
#define TORONI_ANY_INT : int
#else
#define TORONI_ANY_INT
#endif

/* What functions return. Later releases may add values, and do not change these. */
typedef enum toroni_status TORONI_ANY_INT {
    TORONI_OK = 0,
    TORONI_NO_MESSAGE = 1,            /* no message is available, or none arrived in time; not a failure */
    TORONI_LAPPED = 2,                /* the subscriber was too slow and missed messages: ..._last_loss says how many;
                                         call again to continue */
    TORONI_INTERRUPTED = 3,           /* ..._interrupt ended the wait; nothing is lost */
    TORONI_FULL = 4,                  /* a subscriber is slow, and the call does not wait */
    TORONI_BUSY = 5,                  /* another publisher is publishing; or a process removes or checks the bus */
    TORONI_TIMEOUT = 6,               /* the message could not be published in time; or, for toroni_exclusive_open,
                                         another publisher was publishing all that time */
    TORONI_ABORTED = 7,               /* the caller's toroni_fill gave the message up */
    TORONI_TOO_LONG = 8,              /* the message or batch is longer than the bus can carry */
    TORONI_REENTRANT = 9,             /* called within a toroni_fill, or within a handler of the same router */
    TORONI_WOULD_WAIT_FOR_ITSELF = 10, /* the ring is full because of a subscriber that only this thread reads, or
                                          that this thread made and no thread reads: receive first */
    TORONI_UNLINKED = 11,             /* the bus was removed: open it again */
    TORONI_LEASE_LOST = 12,           /* other code of this process closed the library's descriptors */
    TORONI_FORKED = 13,               /* the handle belongs to the parent process */
    TORONI_CORRUPT = 14,              /* the shared memory holds something that no correct process writes */
    TORONI_EXCLUSIVE = 15,            /* the bus has an exclusive publisher, which the text of the error names: no other
                                         one can publish until it is closed or its process ends */
    TORONI_FOREIGN_TOPIC = 16,        /* the topic was made by another handle, of this bus or of another one */
    TORONI_TAKEN = 17,                /* another inlet, which the text of the error names, brings the messages of this
                                         stream until it is closed or its process ends */
    TORONI_TOO_MANY_ARRIVALS = 18,    /* the bus cannot keep track of more streams: see max_arrivals */
    TORONI_LOST = 19,                 /* messages from elsewhere were lost on their way to the bus: ..._last_lost says
                                         which; call again to continue */

    TORONI_INVALID_ARGUMENT = 20,     /* NULL, not UTF-8, or an unknown value */
    TORONI_INVALID_NAME = 21,         /* of a bus */
    TORONI_INVALID_SETTING = 22,      /* outside its range */
    TORONI_INVALID_TOPIC = 23,
    TORONI_INVALID_PATTERN = 24,
    TORONI_INVALID_ORIGIN = 25,       /* a number is TORONI_NUMBER_LIMIT or more */
    TORONI_INVALID_LOSS = 26,         /* its numbers, or the number of its patterns */
    TORONI_NOT_GATING = 27,           /* the subscriber was created with not_gating, so it cannot hold messages */
    TORONI_NOT_RETAINED = 28,         /* the handle has not declared its topic retained, so it cannot clear the value */
    TORONI_NO_VALUES = 29,            /* the bus was created with TORONI_NO_RETAINED, so it keeps no values */

    TORONI_NOT_FOUND = 30,            /* the bus does not exist */
    TORONI_ALREADY_EXISTS = 31,       /* the bus exists, but was to be new */
    TORONI_PERMISSION_DENIED = 32,
    TORONI_NO_SPACE = 33,             /* not enough bytes, inodes, or permitted file size */
    TORONI_BAD_DIRECTORY = 34,        /* of buses: missing, read-only, not a directory, a link, or not trustworthy */
    TORONI_FOREIGN_OWNER = 35,        /* the bus is not as TORONI_REQUIRE_OWNER demands */
    TORONI_UNSUPPORTED = 36,          /* by the file system, the lock of the bus, the machine or its limits */
    TORONI_INCOMPATIBLE = 37,         /* the bus belongs to another release, machine or C library */
    TORONI_DAMAGED = 38,              /* the files of the bus are damaged, or are not a bus */
    TORONI_SETTING_MISMATCH = 39,     /* the bus differs in a setting that toroni_open_options.require names */
    TORONI_TOO_MANY_PARTICIPANTS = 40, /* all slots are taken */
    TORONI_POSITION_UNAVAILABLE = 41, /* the message of TORONI_START_POSITION or _SEQUENCE, or of
                                         toroni_subscriber_hold, is not there */
    TORONI_NOT_CHECKED_SINCE_BOOT = 42, /* a bus on a disk: open it once for publishing */
    TORONI_OUT_OF_REACH = 43,         /* the bus does not work across namespaces or C libraries */
    TORONI_TOO_MANY_RETAINED = 44,    /* the bus retains as many topics as it can (see retained_topics), the topic came
                                         after those that it can retain, or its table of topics is full (see
                                         topic_table_bytes) */
    TORONI_VALUE_TOO_LONG = 45,       /* the message, with 8 to 40 bytes more, is longer than a quarter of
                                         retained_bytes, so it cannot be kept as the value of its topic */
    TORONI_RETAINED_FULL = 46,        /* the message cannot be kept as the value of its topic: all of retained_bytes is
                                         in use */
    TORONI_VALUE_MISSING = 47,        /* the topic has a value for which the bus had no room: toroni_last_missing says
                                         which; a subscriber continues with the next call */
    TORONI_VALUE_UNSTABLE = 48,       /* the value changed at each attempt to read it: subscribe to the topic */

    TORONI_OS = 50,                   /* any other error of the operating system */
    TORONI_PANIC = 51,                /* a bug in the library, which was caught: close the handle */
    TORONI_OTHER = 52                 /* an error that has no status yet */
} toroni_status;

/* Returns the text of the calling thread's last error, in UTF-8, or "" if there was none. The text lives until the
 * thread's next call that fails. Cannot fail. */
const char *toroni_error_message(void);

/* Returns the meaning of a status as a short text, without details of a particular error. The text is static. Cannot
 * fail. */
const char *toroni_status_text(int status);

/* Returns the version of the library, such as "0.1.0". The text is static. Cannot fail. */
const char *toroni_version(void);

/* ---- a bus -------------------------------------------------------------------------------------------- */

/* A timeout or limit that never ends. For a call that publishes: it waits as the policy says. */
#define TORONI_FOREVER UINT64_MAX

/* A timeout with which a call does not wait. */
#define TORONI_NO_WAIT 0

/* An opened bus. It uses no thread and no processor time. */
typedef struct toroni_bus toroni_bus;

/* What publishers do when the ring is full because a subscriber is slow. */
enum {
    TORONI_POLICY_DEFAULT = 0,   /* for a new bus: TORONI_POLICY_WAIT with 100 ms; for a publisher: as the bus */
    TORONI_POLICY_WAIT = 1,      /* wait for at most limit_ns, then overwrite what the subscriber has not read; with
                                    TORONI_FOREVER, wait as long as the subscriber lives */
    TORONI_POLICY_OVERWRITE = 2, /* never wait */
    TORONI_POLICY_BOUNDED = 3    /* all publishers together wait for at most budget_ns in each interval of per_ns */
};

typedef struct toroni_policy {
    int kind;           /* TORONI_POLICY_... */
    uint64_t limit_ns;  /* used by TORONI_POLICY_WAIT */
    uint64_t budget_ns; /* used by TORONI_POLICY_BOUNDED, like per_ns */
    uint64_t per_ns;
} toroni_policy;

/* toroni_open_options.existence */
enum {
    TORONI_OPEN_OR_CREATE = 0,
    TORONI_OPEN_NEW = 1,     /* TORONI_ALREADY_EXISTS if the bus exists */
    TORONI_OPEN_EXISTING = 2 /* TORONI_NOT_FOUND if the bus does not exist */
};

/* toroni_open_options.lock: how publishers exclude one another */
enum {
    TORONI_LOCK_LEASE = 0,
    TORONI_LOCK_ROBUST = 1 /* for publishers that use more than a gigabyte of memory; only within one PID namespace */
};

/* toroni_open_options.notify: how publishers wake sleeping subscribers */
enum { TORONI_NOTIFY_FUTEX = 0, TORONI_NOTIFY_DATAGRAM = 1, TORONI_NOTIFY_MULTICAST = 2 };

/* toroni_open_options.flags */
enum {
    TORONI_FLAG_PERSISTENT = 1,  /* toroni_clean keeps the new bus although no process has it open */
    TORONI_FLAG_HUGE_PAGES = 2,  /* ask the kernel for pages of 2 MiB for the ring */
    TORONI_FLAG_PREFAULT = 4,    /* touch every page of the ring when the bus is opened */
    TORONI_FLAG_LOCK_MEMORY = 8, /* keep the ring in memory, with mlock(2) */
    TORONI_FLAG_TIMESTAMPS = 16  /* messages that this handle publishes carry the time */
};

/* toroni_open_options.require: settings in which an existing bus must agree with the options. If it differs in one of
 * them, toroni_bus_open returns TORONI_SETTING_MISMATCH. In all other settings a bus keeps what it was created with. */
enum {
    TORONI_REQUIRE_CAPACITY = 1,
    TORONI_REQUIRE_POLICY = 2,
    TORONI_REQUIRE_LOCK = 4,
    TORONI_REQUIRE_NOTIFY = 8,
    TORONI_REQUIRE_OWNER = 16 /* the bus, whether new or not, must belong to `owner`: else TORONI_FOREIGN_OWNER */
};

/* The value of toroni_open_options.max_arrivals for a bus that keeps track of no streams. */
#define TORONI_NO_ARRIVALS UINT32_MAX

/* The value of toroni_open_options.retained_topics for a bus that retains no topics. */
#define TORONI_NO_RETAINED UINT32_MAX

/* How toroni_bus_open opens a bus. Initialise it with TORONI_OPEN_OPTIONS_INIT. */
typedef struct toroni_open_options {
    size_t struct_size;
    int existence;                /* TORONI_OPEN_... */
    int lock;                     /* TORONI_LOCK_... */
    int notify;                   /* TORONI_NOTIFY_... */
    uint8_t multicast_address[4]; /* {239, 1, 2, 3} for 239.1.2.3; if address and port are 0, the library derives */
    uint16_t multicast_port;      /* both from the id of the bus */
    const char *directory;        /* that contains the buses, not ""; NULL: see toroni_default_directory */
    uint64_t capacity;            /* bytes of the ring, a power of two from 64 KiB to 1 TiB; 0: 4 MiB */
    uint64_t topic_table_bytes;   /* for the names of topics, a multiple of 4096; 0: 1 MiB */
    uint32_t max_publishers;      /* opened buses that may publish at the same time, 1 to 1024; 0: 128 */
    uint32_t max_subscribers;     /* 1 to 1024; 0: 128 */
    toroni_policy policy;
    uint32_t flags;               /* TORONI_FLAG_..., combined */
    uint32_t require;             /* TORONI_REQUIRE_..., combined */
    uint32_t mode;                /* permission bits of a new bus; 0: as the umask says, where owner, group and others
                                     each get permission to read and write, or none */
    uint32_t owner;               /* number of the user for TORONI_REQUIRE_OWNER */
    const char *writers_group;    /* name or number of the group that may publish on a new bus; NULL: as mode says */
    const char *readers_group;    /* name or number of the group that may only subscribe; NULL: as mode says */
    const char *participant_name; /* of this handle in `toroni info`; NULL: the name of the program */
    uint32_t max_arrivals;        /* streams from elsewhere that the bus keeps track of, which only an inlet needs, at
                                     most 65536; 0: 256; TORONI_NO_ARRIVALS: none */
    uint32_t retained_topics;     /* for how many topics the bus keeps the newest message, at most 4096; 0: 512;
                                     TORONI_NO_RETAINED: none; see toroni_publisher_options.retained */
    uint64_t retained_bytes;      /* that these messages take together, a multiple of 4096, at most 4 GiB; one message,
                                     with 8 to 40 bytes more, takes at most a quarter of them, and each topic has room
                                     for two of its longest; 0: 448 KiB */
} toroni_open_options;

#define TORONI_OPEN_OPTIONS_INIT                                                                            \
    {                                                                                                       \
        sizeof(toroni_open_options), 0, 0, 0, {0, 0, 0, 0}, 0, NULL, 0, 0, 0, 0, {0, 0, 0, 0}, 0, 0, 0, 0, \
            NULL, NULL, NULL, 0, 0, 0                                                                       \
    }

/* Opens a bus, and creates it if it does not exist. The name has 1 to 64 characters of A-Z a-z 0-9 . _ - and does not
 * begin with a dot. If `options` is NULL, the defaults apply.
 * Creates a handle: close it with toroni_bus_close.
 * Errors: TORONI_BUSY, TORONI_UNLINKED, TORONI_CORRUPT, and every status from TORONI_INVALID_ARGUMENT on. */
int toroni_bus_open(const char *name, const toroni_open_options *options, toroni_bus **result);

/* Closes the handle. The bus itself stays, for other processes and to be opened again. */
void toroni_bus_close(toroni_bus *bus);

/* Return the name of the bus, its directory, and its id: 32 hexadecimal digits, chosen at random when the bus was
 * created. The strings live as long as the handle. NULL if `bus` is NULL. */
const char *toroni_bus_name(const toroni_bus *bus);
const char *toroni_bus_path(const toroni_bus *bus);
const char *toroni_bus_id(const toroni_bus *bus);

/* toroni_reopened.outcome */
enum {
    TORONI_REOPENED_NOT = 0,    /* the bus is in memory, or was opened before since the machine booted */
    TORONI_REOPENED_KEPT = 1,   /* its last publisher had closed it, so its messages are intact */
    TORONI_REOPENED_EMPTIED = 2 /* the machine went down while a publisher had it open, so it starts empty */
};

/* What happened to a bus on a disk when it was opened for the first time since the machine booted. */
typedef struct toroni_reopened {
    int outcome;       /* TORONI_REOPENED_..., or -1 for an outcome that this release does not know */
    uint32_t reserved;
    uint64_t messages; /* that were kept and can still be read */
} toroni_reopened;

/* Reports whether this handle is the first one of a bus on a disk since the machine booted, and what the bus kept. */
int toroni_bus_reopened(const toroni_bus *bus, toroni_reopened *result);

/* ---- publishing --------------------------------------------------------------------------------------- */

/* Publishes on one topic. All publishers of one opened bus together are one participant of the bus. */
typedef struct toroni_publisher toroni_publisher;

/* Options for toroni_bus_publisher. Initialise them with TORONI_PUBLISHER_OPTIONS_INIT. */
typedef struct toroni_publisher_options {
    size_t struct_size;
    toroni_policy policy; /* may only wait less than that of the bus: TORONI_POLICY_OVERWRITE, or the kind of the bus
                             with a shorter time */
    int to_descendants;   /* not 0: each call publishes to the topic and to everything below it */
    int retained;         /* not 0: declares the topic retained. From now on, the bus keeps the newest message of the
                             topic, whichever publisher sent it. This message is the value of the topic. The topic stays
                             retained as long as the bus exists. A subscriber that joins later can have the value at once
                             (toroni_subscriber_options.retained), and toroni_bus_retained reads it. If the bus has no room
                             for a message, this handle returns TORONI_VALUE_TOO_LONG or TORONI_RETAINED_FULL, and
                             publishes nothing. A handle that has not declared the topic publishes such a message, too, and
                             the value is then missing (TORONI_VALUE_MISSING). */
} toroni_publisher_options;

#define TORONI_PUBLISHER_OPTIONS_INIT                          \
    {                                                          \
        sizeof(toroni_publisher_options), {0, 0, 0, 0}, 0, 0 \
    }

/* A payload, with the layout of POSIX's struct iovec. `data` may be NULL if `length` is 0. */
typedef struct toroni_bytes {
    const void *data;
    size_t length;
} toroni_bytes;

/* Creates a publisher on a topic, which is a path such as "plant/boiler/temperature". `options` may be NULL. Waits for
 * other publishers if the topic is new to the bus, or if `retained` is set.
 * Creates a handle: close it with toroni_publisher_close.
 * Errors: TORONI_INVALID_TOPIC, TORONI_INVALID_SETTING if the policy may wait longer than that of the bus,
 * TORONI_REENTRANT, TORONI_PERMISSION_DENIED, TORONI_TOO_MANY_PARTICIPANTS, TORONI_OUT_OF_REACH, and those of
 * toroni_bus_open. With `retained` also TORONI_NO_VALUES, TORONI_TOO_MANY_RETAINED, TORONI_EXCLUSIVE if another publisher
 * is exclusive, and TORONI_LEASE_LOST. */
int toroni_bus_publisher(const toroni_bus *bus, const char *topic, const toroni_publisher_options *options,
                         toroni_publisher **result);

/* Closes the handle. */
void toroni_publisher_close(toroni_publisher *publisher);

/* Returns the topic. The string lives as long as the handle. NULL if `publisher` is NULL. */
const char *toroni_publisher_topic(const toroni_publisher *publisher);

/* Returns the length of the longest message that can be published. 0 if `publisher` is NULL. If the publisher has declared
 * its topic retained, the limit of retained_bytes may be less (TORONI_VALUE_TOO_LONG). */
uint64_t toroni_publisher_largest_message(const toroni_publisher *publisher);

/* Publishes a message of `length` bytes, which may be 0. The bytes are copied before the function returns.
 * Waits for other publishers, and for slow subscribers as the policy says.
 *
 * Nothing may write to the bytes during the call. This excludes the payload of a message in place, which a publisher
 * may overwrite. To pass such a message on, either copy it to memory of this process, validate the copy and publish
 * that; or copy it in the `fill` function of toroni_publish_in_place, call toroni_validate after the last read, and
 * give the message up if that fails.
 *
 * If the bus has an exclusive publisher, returns TORONI_EXCLUSIVE at once, without waiting for it.
 *
 * Errors: TORONI_TOO_LONG, TORONI_REENTRANT, TORONI_WOULD_WAIT_FOR_ITSELF, TORONI_UNLINKED, TORONI_LEASE_LOST,
 * TORONI_EXCLUSIVE, TORONI_FORKED, TORONI_CORRUPT, TORONI_OS; and TORONI_VALUE_TOO_LONG and TORONI_RETAINED_FULL if the
 * publisher has declared its topic retained. */
int toroni_publish(const toroni_publisher *publisher, const void *data, size_t length);

/* Does what toroni_publish does, but waits for at most `timeout_ns`, for publishers and subscribers together, and
 * writes the sequence of the message to `sequence`, which may be NULL: the toroni_message.sequence with which
 * subscribers receive it. On failure it writes 0, which is also the sequence of the first message.
 *
 * After that time, returns TORONI_TIMEOUT. With TORONI_NO_WAIT, it does not wait: it returns TORONI_FULL if it would
 * have to wait for a subscriber, and TORONI_BUSY if it would have to wait for another publisher. With TORONI_FOREVER,
 * it waits as toroni_publish does. The same holds for `timeout_ns` of all functions that publish. */
int toroni_publish_within(const toroni_publisher *publisher, const void *data, size_t length, uint64_t timeout_ns,
                          uint64_t *sequence);

/* Publishes `count` messages in a row that become visible together: all of them or, on failure, none. Waits and fails
 * as toroni_publish_within does. Returns TORONI_TOO_LONG if the messages together are longer than the largest message.
 * Writes the sequence of the first message to `first`, which may be NULL; the sequences are consecutive. On failure,
 * and if `count` is 0, it writes 0. */
int toroni_publish_batch(const toroni_publisher *publisher, const toroni_bytes *payloads, size_t count,
                         uint64_t timeout_ns, uint64_t *first);

/* Publishes `count` messages one after the other; each is visible at once. The writer lock is taken once for as many
 * messages as there is space for. Waits and fails as toroni_publish_within does, but the messages before an error stay
 * published, and the time is that of all messages together. Writes their number to `published`, which may be NULL; on
 * success that is `count`. If any message is too long, none is published. */
int toroni_publish_burst(const toroni_publisher *publisher, const toroni_bytes *payloads, size_t count,
                         uint64_t timeout_ns, size_t *published);

/* Writes a message directly to the shared memory from which subscribers read it. `data` points to `length` bytes,
 * aligned to 8, which still contain parts of older messages. Returns 0 to publish the message, and any other value to
 * give it up. `context` is the argument of toroni_publish_in_place.
 *
 * The function runs under the writer lock, while all other publishers wait, so it should be short. It must not use the
 * bus (TORONI_REENTRANT), keep `data`, end its thread, or leave by longjmp or an exception. */
typedef int (*toroni_fill)(void *data, size_t length, void *context);

/* Publishes a message of `length` bytes that `fill` writes in place, without a copy. Waits and fails as
 * toroni_publish_within does, and writes the sequence as that does; on such an error, `fill` has usually not been
 * called. If `fill` gives the message up, returns TORONI_ABORTED and publishes nothing. */
int toroni_publish_in_place(const toroni_publisher *publisher, size_t length, uint64_t timeout_ns, toroni_fill fill,
                            void *context, uint64_t *sequence);

/* Clears the value of the topic, which the publisher must have declared retained. The topic then has no value until its
 * next message. Subscribers that asked for values receive a message with TORONI_MESSAGE_CLEARED; others notice nothing.
 * A message without a payload is a value, and clears nothing. Waits and fails as toroni_publish_within does, and writes
 * the sequence of the clear to `sequence`, which may be NULL.
 * Errors: TORONI_NOT_RETAINED, and those of toroni_publish_within except TORONI_TOO_LONG. */
int toroni_publisher_clear(const toroni_publisher *publisher, uint64_t timeout_ns, uint64_t *sequence);

/* ---- publishing exclusively --------------------------------------------------------------------------- */

/* The only publisher of a bus, for as long as it exists. It keeps the writer lock, so each message costs less than that
 * of a toroni_publisher. Every other call that publishes on the bus, in this process or another one, returns
 * TORONI_EXCLUSIVE at once. After toroni_exclusive_close, or when the process ends, however it ends, others can publish
 * again. It belongs to one thread at a time. */
typedef struct toroni_exclusive toroni_exclusive;

/* A topic of an exclusive publisher. It belongs to one thread at a time. */
typedef struct toroni_exclusive_topic toroni_exclusive_topic;

/* Creates an exclusive publisher. Waits for at most `timeout_ns` until other publishers have finished their message,
 * and until another exclusive publisher is closed; with 0 it does not wait. If this toroni_bus already has an exclusive
 * publisher, returns TORONI_EXCLUSIVE at once.
 * Creates a handle: close it with toroni_exclusive_close.
 * Errors: TORONI_EXCLUSIVE if another exclusive publisher exists, TORONI_TIMEOUT if another publisher is publishing,
 * TORONI_UNSUPPORTED for TORONI_LOCK_ROBUST, TORONI_REENTRANT, TORONI_PERMISSION_DENIED, TORONI_TOO_MANY_PARTICIPANTS,
 * TORONI_OUT_OF_REACH, and those of toroni_bus_open. */
int toroni_exclusive_open(const toroni_bus *bus, uint64_t timeout_ns, toroni_exclusive **result);

/* Closes the handle, so that others can publish. Its topics stay, and can be used with the next exclusive publisher of
 * the same toroni_bus. */
void toroni_exclusive_close(toroni_exclusive *exclusive);

/* Says whether each message executes a memory fence, also while no subscriber sleeps. By default (0) it does not: then a
 * subscriber that goes to sleep interrupts the processors on which this process runs, by membarrier(2). Call this with 1
 * before the first toroni_exclusive_open_topic if the threads of this process must not be interrupted. */
int toroni_exclusive_set_always_fenced(const toroni_exclusive *exclusive, int always);

/* Creates a topic to publish on, which is a path such as "plant/boiler/temperature". `options` may be NULL.
 * Creates a handle: close it with toroni_exclusive_topic_close.
 * Errors: TORONI_INVALID_TOPIC, TORONI_INVALID_SETTING if the policy may wait longer than that of the bus,
 * TORONI_REENTRANT, TORONI_LEASE_LOST, TORONI_FORKED, TORONI_CORRUPT; with `retained` also TORONI_NO_VALUES and
 * TORONI_TOO_MANY_RETAINED. */
int toroni_exclusive_open_topic(const toroni_exclusive *exclusive, const char *topic,
                                const toroni_publisher_options *options, toroni_exclusive_topic **result);

/* Closes the handle. */
void toroni_exclusive_topic_close(toroni_exclusive_topic *topic);

/* Returns the length of the longest message that can be published on the topic. 0 if `topic` is NULL. If the handle has
 * declared the topic retained, the limit of retained_bytes may be less (TORONI_VALUE_TOO_LONG). */
uint64_t toroni_exclusive_topic_largest_message(const toroni_exclusive_topic *topic);

/* Publishes a message on a topic of the exclusive publisher, as toroni_publish_within does. Waits only for slow
 * subscribers, and keeps the lock meanwhile. `sequence` may be NULL.
 *
 * Errors: those of toroni_publish_within, and TORONI_FOREIGN_TOPIC if the exclusive publisher of another toroni_bus
 * made the topic. TORONI_LEASE_LOST also means that another publisher has taken over: close the handles, and open the
 * bus again. */
int toroni_exclusive_publish(const toroni_exclusive *exclusive, const toroni_exclusive_topic *topic,
                             const void *data, size_t length, uint64_t timeout_ns, uint64_t *sequence);

/* Does what toroni_publish_batch does. Errors are those of toroni_exclusive_publish. */
int toroni_exclusive_publish_batch(const toroni_exclusive *exclusive, const toroni_exclusive_topic *topic,
                                   const toroni_bytes *payloads, size_t count, uint64_t timeout_ns,
                                   uint64_t *first);

/* Does what toroni_publish_burst does; no message of another publisher comes in between. Errors are those of
 * toroni_exclusive_publish. */
int toroni_exclusive_publish_burst(const toroni_exclusive *exclusive, const toroni_exclusive_topic *topic,
                                   const toroni_bytes *payloads, size_t count, uint64_t timeout_ns,
                                   size_t *published);

/* Does what toroni_publish_in_place does. The function `fill` must not use the exclusive publisher (TORONI_REENTRANT),
 * but may close it. Errors are those of toroni_exclusive_publish. */
int toroni_exclusive_publish_in_place(const toroni_exclusive *exclusive, const toroni_exclusive_topic *topic,
                                      size_t length, uint64_t timeout_ns, toroni_fill fill, void *context,
                                      uint64_t *sequence);

/* Does what toroni_publisher_clear does. Errors are TORONI_NOT_RETAINED, and those of toroni_exclusive_publish except
 * TORONI_TOO_LONG. */
int toroni_exclusive_clear(const toroni_exclusive *exclusive, const toroni_exclusive_topic *topic, uint64_t timeout_ns,
                           uint64_t *sequence);

/* ---- messages from elsewhere -------------------------------------------------------------------------- */

/* The numbers of messages in origins are less than this: they have 48 bits. */
#define TORONI_NUMBER_LIMIT (UINT64_C(1) << 48)

/* Names a message that was first published elsewhere: on another host, on another bus or at another time. The name is
 * the same wherever the message arrives. The messages of one stream and series have growing numbers, which need not
 * be consecutive. */
typedef struct toroni_origin {
    uint64_t number;      /* of the message in its series, less than TORONI_NUMBER_LIMIT */
    uint32_t source;      /* the host or program that published it first */
    uint32_t series;      /* the series of numbers; a source begins a new one when it counts from 0 again */
    uint16_t stream;      /* of the source */
    uint16_t reserved[3];
} toroni_origin;

/* Publishes messages that were first published elsewhere, and losses of such messages. It is for programs that connect
 * buses: a bridge, a receiver of a network, a replay. It is a participant of its own. Any number of threads may use it.
 *
 * Each message arrives once. The bus keeps the lowest number of each stream that has not arrived, even if the process
 * that brings the stream is killed. A message with a lower number is a duplicate: it is dropped and counted. So a
 * program that restarts, or a second one, may publish everything again.
 *
 * One inlet at a time brings a stream. Another one gets TORONI_TAKEN, until the first is closed or its process has
 * ended. */
typedef struct toroni_inlet toroni_inlet;

/* A topic of an inlet. Any number of threads may use it, except while toroni_inlet_retain changes it. */
typedef struct toroni_inlet_topic toroni_inlet_topic;

/* toroni_inlet_entry.flags. The first four have the values of the flags of toroni_message. */
enum {
    TORONI_ENTRY_TO_DESCENDANTS = 1, /* also publish to everything below the topic */
    TORONI_ENTRY_HAS_TIMESTAMP = 2,
    TORONI_ENTRY_HAS_ORIGIN = 4,
    TORONI_ENTRY_HAS_NUMBER = 8,
    TORONI_ENTRY_HAS_OPEN_FROM = 16
};

/* A message for toroni_inlet_publish. A field for which the flag is not set is not read. */
typedef struct toroni_inlet_entry {
    const toroni_inlet_topic *topic;
    const toroni_bytes *parts; /* the bytes of the message: part_count parts, which are written one after the other */
    size_t part_count;
    toroni_origin origin;      /* where it was first published; without it, the message is never a duplicate */
    uint64_t open_from;        /* if the messages of the stream arrive in any order: the lowest number that is still
                                  missing. No message with this or a higher number is then dropped. Without it, they
                                  arrive in the order of their numbers. At most TORONI_NUMBER_LIMIT. */
    uint64_t number;           /* its place in an order over several buses */
    uint64_t timestamp_ns;     /* when it was first published; without it, the bus stamps the message if it was opened
                                  with TORONI_FLAG_TIMESTAMPS */
    uint32_t flags;            /* TORONI_ENTRY_..., combined */
    uint32_t reserved;
} toroni_inlet_entry;

/* toroni_lost.bound: how exact the number of messages is */
enum { TORONI_BOUND_EXACT = 0, TORONI_BOUND_AT_LEAST = 1, TORONI_BOUND_AT_MOST = 2 };

/* toroni_lost.reason */
enum {
    TORONI_REASON_GONE = 1,       /* the sender no longer had them */
    TORONI_REASON_BUDGET = 2,     /* they could not be repaired in the time that the receiver waits for repairs */
    TORONI_REASON_MEMORY = 3,     /* the receiver had no memory left to hold what came after them */
    TORONI_REASON_BURST = 4,      /* more of them were missing at once than the receiver keeps track of */
    TORONI_REASON_JUMP = 5,       /* the sender was suddenly far ahead */
    TORONI_REASON_RESTART = 6,    /* the source restarted with a new series */
    TORONI_REASON_SILENT = 7,     /* the source fell silent, so it is not known what it published last */
    TORONI_REASON_TOPIC = 8,      /* the name of their topic did not arrive */
    TORONI_REASON_TOO_LONG = 9,   /* they were too long for the network or for this bus */
    TORONI_REASON_OVERTAKEN = 10, /* at the source, publishers overtook the program that sends the messages on */
    TORONI_REASON_DIVERGED = 11   /* the members of a replicated service disagreed about them */
};

/* Messages that were lost on their way to this bus (TORONI_LOST). */
typedef struct toroni_lost {
    toroni_origin from;       /* the stream, and the first number that may be lost */
    uint64_t until;           /* the number after the last one that may be lost, at least from.number, at most
                                 TORONI_NUMBER_LIMIT */
    uint64_t messages;        /* how many were lost; may be less than the difference of the numbers, which also count
                                 messages of other streams */
    int bound;                /* TORONI_BOUND_...: how exact that is */
    int reason;               /* TORONI_REASON_... */
    const char *const *scope; /* patterns of the topics that they may have had */
    size_t scope_count;       /* 1 to 16 */
} toroni_lost;

/* How far a stream has arrived. */
typedef struct toroni_arrived {
    uint64_t next;     /* the lowest number that has not arrived, neither as a message nor as a loss: 0 if none has */
    int taken_over;    /* not 0: another inlet brought the stream until now */
    uint32_t reserved;
} toroni_arrived;

/* Options for toroni_inlet_open. Initialise them with TORONI_INLET_OPTIONS_INIT. */
typedef struct toroni_inlet_options {
    size_t struct_size;
    toroni_policy policy; /* may only wait less than that of the bus; see toroni_publisher_options */
} toroni_inlet_options;

#define TORONI_INLET_OPTIONS_INIT                    \
    {                                                \
        sizeof(toroni_inlet_options), {0, 0, 0, 0} \
    }

/* Creates an inlet. `options` may be NULL.
 * Creates a handle: close it with toroni_inlet_close.
 * Errors: TORONI_INVALID_SETTING if the policy may wait longer than that of the bus, TORONI_PERMISSION_DENIED,
 * TORONI_TOO_MANY_PARTICIPANTS, TORONI_OUT_OF_REACH, and those of toroni_bus_open. */
int toroni_inlet_open(const toroni_bus *bus, const toroni_inlet_options *options, toroni_inlet **result);

/* Closes the handle, so that another inlet can bring its streams. Its topics can then only be closed. */
void toroni_inlet_close(toroni_inlet *inlet);

/* Creates a topic to publish on. While the topic table of the bus is less than half full, a new topic is entered there.
 * Beyond that, the name travels with each message.
 * Creates a handle: close it with toroni_inlet_topic_close.
 * Errors: TORONI_INVALID_TOPIC, TORONI_REENTRANT, TORONI_FORKED, TORONI_CORRUPT, TORONI_OS. */
int toroni_inlet_open_topic(const toroni_inlet *inlet, const char *topic, toroni_inlet_topic **result);

/* Closes the handle. */
void toroni_inlet_topic_close(toroni_inlet_topic *topic);

/* Declares a topic of the inlet retained; see toroni_publisher_options.retained. An inlet publishes a message even if the
 * bus has no room for it. The value is then missing (TORONI_VALUE_MISSING). A topic that was made while another publisher
 * was exclusive is entered in the topic table now. Waits for other publishers. No other thread may use the topic meanwhile.
 * Errors: TORONI_NO_VALUES, TORONI_TOO_MANY_RETAINED, TORONI_EXCLUSIVE, TORONI_FOREIGN_TOPIC if another inlet made the
 * topic, TORONI_REENTRANT, TORONI_LEASE_LOST, TORONI_FORKED, TORONI_CORRUPT. */
int toroni_inlet_retain(const toroni_inlet *inlet, toroni_inlet_topic *topic);

/* Claims a stream for this inlet, and reports how far it has arrived. toroni_inlet_publish does the same when it first
 * meets a stream. Call this to learn what need not be sent again. A stream of which nothing has arrived is claimed by
 * its first message. Waits for other publishers, as toroni_publish_within does, and for no subscriber.
 * Errors: TORONI_TAKEN, and those of toroni_publish_within except TORONI_TOO_LONG. */
int toroni_inlet_claim(const toroni_inlet *inlet, uint32_t source, uint32_t series, uint16_t stream,
                       uint64_t timeout_ns, toroni_arrived *result);

/* Publishes `count` messages one after the other, on any topics; each is visible at once. The writer lock is taken once
 * for as many messages as there is space for. Waits as toroni_publish_within does; the time is that of all messages
 * together. Writes to `published`, which may be NULL, how many messages were published or dropped as duplicates; on
 * success that is `count`. If any message is invalid or too long, none is published.
 * Errors: TORONI_TAKEN, TORONI_TOO_MANY_ARRIVALS, TORONI_INVALID_ORIGIN, TORONI_FOREIGN_TOPIC if another inlet made a
 * topic, and those of toroni_publish_within. */
int toroni_inlet_publish(const toroni_inlet *inlet, const toroni_inlet_entry *entries, size_t count,
                         uint64_t timeout_ns, size_t *published);

/* Reports to subscribers that messages were lost on the way here, at this place of the order. It concerns a subscriber
 * if one of its patterns and one of the scope could match the same topic. The numbers of the loss count as arrived: if
 * all of them have arrived before, the loss is dropped as a duplicate. A loss without numbers says that more may be
 * missing: it is dropped if no message of the stream has come since the last such loss. `open_from` is what toroni_inlet_entry.open_from
 * is for messages; NULL means that the messages arrive in the order of their numbers. Waits as toroni_publish_within
 * does.
 * Errors: TORONI_INVALID_LOSS, TORONI_INVALID_PATTERN, TORONI_INVALID_ORIGIN if `open_from` is too large,
 * TORONI_TOO_MANY_ARRIVALS, and those of toroni_inlet_claim. */
int toroni_inlet_publish_lost(const toroni_inlet *inlet, const toroni_lost *lost, const uint64_t *open_from,
                              uint64_t timeout_ns);

/* States how far a stream has arrived, without publishing anything: all numbers below next->number have arrived, or
 * were reported. A number that is not above what the bus knows changes nothing. Waits as toroni_inlet_claim does.
 * Errors: TORONI_INVALID_ORIGIN, TORONI_TOO_MANY_ARRIVALS, and those of toroni_inlet_claim. */
int toroni_inlet_advance(const toroni_inlet *inlet, const toroni_origin *next, uint64_t timeout_ns);

/* Returns how many messages and losses the inlet has dropped because they had arrived before. 0 if `inlet` is NULL. */
uint64_t toroni_inlet_duplicates(const toroni_inlet *inlet);

/* ---- receiving ---------------------------------------------------------------------------------------- */

/* Receives the messages that match its patterns, in the one order of the bus. It belongs to one thread at a time, and
 * occupies a slot of the bus until it is closed. */
typedef struct toroni_subscriber toroni_subscriber;

/* toroni_subscriber_options.start: the first message to receive */
enum {
    TORONI_START_LATEST = 0,  /* the next one that is published */
    TORONI_START_OLDEST = 1,  /* the oldest one that is still in the ring */
    TORONI_START_POSITION = 2, /* the one at `position`, which is a toroni_message.position or next_position */
    TORONI_START_SEQUENCE = 3 /* the one with `sequence`, a toroni_message.sequence; or the next one, if it will have it */
};

/* toroni_subscriber_options.wait: how blocking calls wait */
enum {
    TORONI_WAIT_BACKOFF = 0, /* poll briefly, then yield, then sleep */
    TORONI_WAIT_SPIN = 1,    /* poll all the time: lowest latency, occupies a whole core */
    TORONI_WAIT_YIELD = 2,   /* poll, and let other threads run in between */
    TORONI_WAIT_BLOCK = 3    /* sleep at once: least processor time */
};

/* toroni_subscriber_options.after_loss: where the subscriber continues after TORONI_LAPPED */
enum {
    TORONI_CONTINUE_OLDEST = 0, /* with the oldest message that it can still read */
    TORONI_CONTINUE_NEWEST = 1  /* with the newest one that matches; toroni_loss counts all that it passes over */
};

/* Options for toroni_bus_subscribe_with. Initialise them with TORONI_SUBSCRIBER_OPTIONS_INIT. */
typedef struct toroni_subscriber_options {
    size_t struct_size;
    const char *const *patterns; /* pattern_count of them; without a pattern nothing is received */
    size_t pattern_count;
    int start;                   /* TORONI_START_... */
    int wait;                    /* TORONI_WAIT_... */
    uint64_t position;           /* for TORONI_START_POSITION; is valid for one bus only: compare toroni_bus_id */
    uint64_t sequence;           /* for TORONI_START_SEQUENCE; is valid for one bus only, too */
    int not_gating;              /* not 0: publishers do not wait for this subscriber */
    int local_only;              /* not 0: it passes over messages with an origin, and over losses from elsewhere, as a
                                    program needs that sends the messages of the bus to other places */
    const char *name;            /* in `toroni info`; NULL: the participant_name of the bus */
    uint64_t max_age_ns;         /* it passes over messages whose timestamp is longer ago than this when it receives
                                    them; those without a timestamp are received; 0: any age */
    int after_loss;              /* TORONI_CONTINUE_... */
    int retained;                /* not 0: it first receives the values of all retained topics that match, in the order of
                                    the bus, and then what follows, without a gap or a duplicate. After TORONI_LAPPED it
                                    first receives the values that changed within the loss. Messages with
                                    TORONI_MESSAGE_RETAINED are values. max_age_ns does not apply to them. */
} toroni_subscriber_options;

#define TORONI_SUBSCRIBER_OPTIONS_INIT                                             \
    {                                                                              \
        sizeof(toroni_subscriber_options), NULL, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0 \
    }

/* toroni_message.flags */
enum {
    TORONI_MESSAGE_TO_DESCENDANTS = 1, /* was also published to everything below its topic */
    TORONI_MESSAGE_HAS_TIMESTAMP = 2,
    TORONI_MESSAGE_HAS_ORIGIN = 4,
    TORONI_MESSAGE_HAS_NUMBER = 8,
    TORONI_MESSAGE_RETAINED = 16, /* it is the value of its topic, and older than what the subscriber receives otherwise */
    TORONI_MESSAGE_CLEARED = 32   /* it is no message: the value of its topic was cleared */
};

/* A received message. What it points to lives until the next call on its subscriber, or until its handler returns. */
typedef struct toroni_message {
    const void *payload;   /* of any alignment; never NULL, even if it is empty */
    size_t payload_length;
    const char *topic;     /* UTF-8, and NOT ended by 0: printf("%.*s", (int)m.topic_length, m.topic) */
    size_t topic_length;
    uint64_t sequence;     /* number of the message among all messages of the bus, from 0 */
    uint64_t position;     /* in the stream of the bus */
    uint64_t next_position; /* position of the next message */
    uint64_t timestamp_ns; /* when it was published, if flags has TORONI_MESSAGE_HAS_TIMESTAMP; else 0 */
    uint64_t number;       /* place in an order over several buses, if flags has TORONI_MESSAGE_HAS_NUMBER; else 0 */
    toroni_origin origin;  /* where it was first published, if flags has TORONI_MESSAGE_HAS_ORIGIN; else zeros */
    uint32_t flags;        /* TORONI_MESSAGE_..., combined */
    uint32_t reserved;
} toroni_message;

/* What was overwritten before the subscriber read it (TORONI_LAPPED). */
typedef struct toroni_loss {
    uint64_t messages; /* of the whole bus, whatever their topics */
    uint64_t bytes;    /* of the stream */
} toroni_loss;

/* What happened to a subscriber since it subscribed. */
typedef struct toroni_subscriber_stats {
    uint64_t received;      /* messages that it returned, including those in place that toroni_validate found to be
                               overwritten, which lost_messages and lapses do not count */
    uint64_t lost_messages; /* messages of the whole bus that were overwritten before it read them */
    uint64_t lapses;        /* how often that happened */
    uint64_t losses;        /* how often it returned TORONI_LOST */
    uint64_t lost_on_the_way; /* the sum of toroni_lost.messages of these losses */
    uint64_t stale;         /* messages that were older than max_age_ns, and that it passed over */
    uint64_t unknown;       /* records of a kind that only a later release knows, and that it passed over */
    uint64_t reserved[1];
} toroni_subscriber_stats;

/* Subscribes to one pattern, in which `*` matches one segment of a topic and `**` any number of segments. Receives
 * messages that are published from now on.
 * Creates a handle: close it with toroni_subscriber_close.
 * Errors: TORONI_INVALID_PATTERN, TORONI_PERMISSION_DENIED, TORONI_TOO_MANY_PARTICIPANTS,
 * TORONI_NOT_CHECKED_SINCE_BOOT, and those of toroni_bus_open. */
int toroni_bus_subscribe(const toroni_bus *bus, const char *pattern, toroni_subscriber **result);

/* Does what toroni_bus_subscribe does, with options. Can also fail with TORONI_POSITION_UNAVAILABLE, and with
 * TORONI_NO_VALUES if `retained` is set. */
int toroni_bus_subscribe_with(const toroni_bus *bus, const toroni_subscriber_options *options,
                              toroni_subscriber **result);

/* Unsubscribes, and closes the handle. */
void toroni_subscriber_close(toroni_subscriber *subscriber);

/* Adds a pattern. A message that matches several patterns is received once. A pattern that is added begins without the
 * values of retained topics.
 * Errors: TORONI_INVALID_PATTERN, TORONI_FORKED. */
int toroni_subscriber_add_pattern(toroni_subscriber *subscriber, const char *pattern);

/* Receives the next message, and waits for it. A signal does not end the wait; toroni_subscriber_interrupt does, and a
 * signal handler may call it.
 * Errors: TORONI_LAPPED and TORONI_LOST, after which the next call continues past the loss; TORONI_VALUE_MISSING, only if
 * the subscriber asked for values, after which it continues past the value; TORONI_CORRUPT, after which
 * the next call continues past the message if only that was not valid; TORONI_INTERRUPTED, TORONI_UNLINKED,
 * TORONI_FORKED, TORONI_OS. */
int toroni_receive(toroni_subscriber *subscriber, toroni_message *message);

/* Does what toroni_receive does, without waiting. Returns TORONI_NO_MESSAGE if no message is available. */
int toroni_try_receive(toroni_subscriber *subscriber, toroni_message *message);

/* Does what toroni_receive does, but returns TORONI_NO_MESSAGE if no message arrives within `timeout_ns`. */
int toroni_receive_timeout(toroni_subscriber *subscriber, uint64_t timeout_ns, toroni_message *message);

/* Receives the next message in place: `payload` points to the shared memory of the bus, and nothing is copied. Waits
 * for at most `timeout_ns`, which may be 0 or TORONI_FOREVER. Errors are those of toroni_receive; returns
 * TORONI_NO_MESSAGE if no message arrives in time.
 *
 * The message is the first of a run, and toroni_next_in_place returns the ones that follow. All messages of a run stay
 * accessible until the run ends. Any other call on the subscriber ends it, except toroni_validate,
 * toroni_subscriber_run_number, toroni_subscriber_slot, toroni_subscriber_is_current, toroni_subscriber_last_loss and
 * toroni_subscriber_last_lost. A run ends before a loss from elsewhere. A value of a retained topic is a run of its own.
 *
 * A publisher may overwrite the messages while they are read. So do not rely on anything read from a payload,
 * including lengths and numbers in it, until toroni_validate has returned TORONI_OK after the last read. The same
 * holds for timestamp_ns, number and origin. All other fields of toroni_message are reliable.
 *
 * The compiler assumes that no one else writes to these bytes. So read each byte once, copy what you base a decision
 * on with memcpy, and do not expect to read the same value again after the validation. Only if the policy is
 * TORONI_POLICY_WAIT with TORONI_FOREVER and the subscriber gates, the bytes never change. */
int toroni_receive_in_place(toroni_subscriber *subscriber, uint64_t timeout_ns, toroni_message *message);

/* Receives the next message of the run. Returns TORONI_NO_MESSAGE at the end of the run; toroni_receive_in_place then
 * starts another one. */
int toroni_next_in_place(toroni_subscriber *subscriber, toroni_message *message);

/* Checks that everything read so far from the run is what was published. If it may have been overwritten, returns
 * TORONI_LAPPED, with all messages of the run as lost. Returns TORONI_INVALID_ARGUMENT if there is no run. */
int toroni_validate(toroni_subscriber *subscriber);

/* Returns the number of the run that the subscriber is in: 1 for its first one. 0 if it is in none, or if `subscriber`
 * is NULL. toroni_next_in_place and toroni_validate always act on this run. So code that keeps a message of a run can
 * keep this number with it, and notice that another run has started (toroni::run of C++ does so). */
uint64_t toroni_subscriber_run_number(const toroni_subscriber *subscriber);

/* Reports the loss that the last TORONI_LAPPED of this subscriber stands for. All zeros if there was none. */
int toroni_subscriber_last_loss(const toroni_subscriber *subscriber, toroni_loss *loss);

/* Reports the loss that the last TORONI_LOST of this subscriber stands for. All zeros if there was none. What `lost`
 * points to lives until the next TORONI_LOST of this subscriber, or until it is closed. */
int toroni_subscriber_last_lost(const toroni_subscriber *subscriber, toroni_lost *lost);

/* Ends the blocking call of the subscriber, in another thread or in the code that a signal handler interrupted, with
 * TORONI_INTERRUPTED. If there is no such call, the request ends the next call that would wait; toroni_try_receive and
 * calls with a timeout of 0 do not wait. Several requests before that count as one. The call usually ends at once, and
 * always within a quarter of a second.
 * Async-signal-safe. Any thread may call it, as long as the subscriber is not closed. Cannot fail. */
void toroni_subscriber_interrupt(const toroni_subscriber *subscriber);

/* Returns a descriptor for poll, epoll or any event loop, which is readable when there may be messages. Call
 * toroni_try_receive until it returns TORONI_NO_MESSAGE, then wait until the descriptor is readable, and repeat. Do
 * not read from the descriptor. The first call creates it, and closing the subscriber closes it.
 * Errors: TORONI_FORKED, and TORONI_OS if the process has no descriptors left. */
int toroni_subscriber_fd(toroni_subscriber *subscriber, int *fd);

/* Return the position of the next message to be examined, and the number of bytes of the stream that the subscriber
 * has not read yet. 0 if `subscriber` is NULL. */
uint64_t toroni_subscriber_position(toroni_subscriber *subscriber);
uint64_t toroni_subscriber_lag_bytes(toroni_subscriber *subscriber);

/* The number that stands for no sequence. */
#define TORONI_NO_SEQUENCE UINT64_MAX

/* Makes publishers keep the messages from `sequence` on, a toroni_message.sequence, although this subscriber reads on.
 * Another subscriber can then still read them (TORONI_START_SEQUENCE). It is for programs that must be able to send
 * messages again until they are acknowledged.
 *
 * Publishers wait for what is held as for messages that the subscriber has not read: as the policy of the bus says. So
 * a limit of the policy limits the hold too, and TORONI_POLICY_OVERWRITE ignores it. If the policy lets publishers
 * overwrite a message that is held, the hold ends, and toroni_subscriber_held returns TORONI_NO_SEQUENCE. What the
 * subscriber receives does not depend on the hold.
 *
 * Another call moves the hold: forward, which lets waiting publishers continue, or back, as long as the message is in
 * the ring. A thread that publishes on a bus that is full because of its own hold gets TORONI_WOULD_WAIT_FOR_ITSELF. On
 * failure the previous hold stays.
 * Errors: TORONI_POSITION_UNAVAILABLE if the message is no longer in the ring, TORONI_NOT_GATING, TORONI_LEASE_LOST,
 * TORONI_FORKED, TORONI_CORRUPT. */
int toroni_subscriber_hold(toroni_subscriber *subscriber, uint64_t sequence);

/* Ends the hold: publishers again wait only for what the subscriber has not read. Without a hold, does nothing. */
int toroni_subscriber_release_hold(toroni_subscriber *subscriber);

/* Returns the sequence of the hold. TORONI_NO_SEQUENCE if there is none, if a message of it was overwritten, or if
 * `subscriber` is NULL. */
uint64_t toroni_subscriber_held(toroni_subscriber *subscriber);

/* The number that stands for no slot. */
#define TORONI_NO_SLOT UINT32_MAX

/* Returns the number of the subscriber's slot, as toroni_subscriber_info and `toroni info` show it. TORONI_NO_SLOT if
 * `subscriber` is NULL. Does not end a run. */
uint32_t toroni_subscriber_slot(const toroni_subscriber *subscriber);

/* Returns 1 if the subscriber has received all values that it asked for (toroni_subscriber_options.retained), so that what
 * it receives next is new. 0 if not, or if `subscriber` is NULL. Does not end a run. */
int toroni_subscriber_is_current(const toroni_subscriber *subscriber);

/* Reports what happened to the subscriber so far. */
int toroni_subscriber_get_stats(toroni_subscriber *subscriber, toroni_subscriber_stats *stats);

/* ---- values of retained topics ------------------------------------------------------------------------ */

/* Values of retained topics, in the order of the bus. What it points to lives as long as the list. It belongs to one
 * thread at a time. */
typedef struct toroni_values toroni_values;

/* The value of a retained topic: its newest message. If it could not be read, status is not TORONI_OK, and only topic,
 * sequence and missing_length are set, as far as they are known. */
typedef struct toroni_value {
    const char *topic;       /* "" if it is not known */
    const void *payload;     /* of any alignment; NULL if the value could not be read, but not if it is empty */
    size_t payload_length;
    uint64_t sequence;       /* this and the next five fields are as in toroni_message */
    uint64_t position;
    uint64_t timestamp_ns;
    uint64_t number;
    toroni_origin origin;
    uint32_t flags;          /* TORONI_MESSAGE_TO_DESCENDANTS and TORONI_MESSAGE_HAS_..., combined */
    int status;              /* TORONI_OK, TORONI_VALUE_MISSING, TORONI_VALUE_UNSTABLE or TORONI_CORRUPT */
    const char *problem;     /* why it could not be read; NULL: it could */
    uint64_t missing_length; /* for TORONI_VALUE_MISSING, as toroni_missing.length */
} toroni_value;

/* A value for which the bus had no room (TORONI_VALUE_MISSING). */
typedef struct toroni_missing {
    const char *topic;
    uint64_t sequence; /* of the newest message of the topic */
    uint64_t length;   /* bytes of that message, and of what it carries besides */
} toroni_missing;

/* Reads the value of one topic, without subscribing. Takes no slot, and waits for no publisher. After this thread has
 * received a message of the topic, it reads that one or a newer one. The list then has one value, which could be read.
 * Returns TORONI_NO_MESSAGE if the topic is not retained, has no value yet, or its value was cleared.
 * Creates a handle: close it with toroni_values_close.
 * Errors: TORONI_INVALID_TOPIC, TORONI_NO_VALUES, TORONI_VALUE_MISSING, TORONI_VALUE_UNSTABLE, TORONI_CORRUPT,
 * TORONI_FORKED, and those of toroni_bus_open. */
int toroni_bus_retained(const toroni_bus *bus, const char *topic, toroni_values **result);

/* Reads the values of all topics that match a pattern, as toroni_bus_retained does. Topics without a value are not in the
 * list. A value that could not be read is in the list with its status.
 * Creates a handle: close it with toroni_values_close.
 * Errors: TORONI_INVALID_PATTERN, TORONI_NO_VALUES, TORONI_CORRUPT, TORONI_FORKED, and those of toroni_bus_open. */
int toroni_bus_retained_matching(const toroni_bus *bus, const char *pattern, toroni_values **result);

/* Closes the handle. */
void toroni_values_close(toroni_values *values);

/* Return the number of values, and each value by its index from 0. An index that is too large returns NULL. If `values`
 * is NULL, they return 0 and NULL. */
size_t toroni_values_count(const toroni_values *values);
const toroni_value *toroni_values_at(const toroni_values *values, size_t index);

/* Reports the value that the calling thread's last TORONI_VALUE_MISSING stands for, whichever function returned that. All
 * zeros if there was none. What `missing` points to lives until the thread's next TORONI_VALUE_MISSING. */
int toroni_last_missing(toroni_missing *missing);

/* ---- a router ----------------------------------------------------------------------------------------- */

/* One subscriber that calls handlers. It belongs to one thread at a time, which runs the handlers. */
typedef struct toroni_router toroni_router;

/* Handles a message, which lives until the handler returns. A handler may publish. It must not use or close its router
 * (TORONI_REENTRANT), except with toroni_router_interrupt, and must not leave by longjmp or an exception. */
typedef void (*toroni_handler)(const toroni_message *message, void *context);

/* Handles a loss of messages. The rules for toroni_handler apply. */
typedef void (*toroni_loss_handler)(const toroni_loss *loss, void *context);

/* Handles a loss of messages from elsewhere, which lives until the handler returns. The rules for toroni_handler
 * apply. */
typedef void (*toroni_lost_handler)(const toroni_lost *lost, void *context);

/* Creates a router without handlers.
 * Creates a handle: close it with toroni_router_close. Errors are those of toroni_bus_subscribe. */
int toroni_bus_router(const toroni_bus *bus, toroni_router **result);

/* Closes the handle. Does nothing if a handler of the router calls it. */
void toroni_router_close(toroni_router *router);

/* Adds a handler. From now on, the router calls `handler` with `context` for each message that matches the pattern. If
 * several handlers match, it calls all of them in the order in which they were added. `context` stays the caller's,
 * and must live as long as the router.
 * Errors: TORONI_INVALID_PATTERN, TORONI_FORKED. */
int toroni_router_on(toroni_router *router, const char *pattern, toroni_handler handler, void *context);

/* Sets a handler that the router calls when it was too slow and missed messages, instead of returning
 * TORONI_LAPPED. */
int toroni_router_on_lapped(toroni_router *router, toroni_loss_handler handler, void *context);

/* Sets a handler that the router calls when messages from elsewhere were lost, instead of returning TORONI_LOST. */
int toroni_router_on_lost(toroni_router *router, toroni_lost_handler handler, void *context);

/* Handles all messages that are available, and writes their number to `handled`, which may be NULL. Errors are those
 * of toroni_receive. On an error, `handled` is the number of messages that were handled before it. */
int toroni_router_poll(toroni_router *router, size_t *handled);

/* Waits for the next message for at most `timeout_ns`, and handles it. Returns TORONI_NO_MESSAGE if none arrived.
 * Errors are those of toroni_receive. */
int toroni_router_run_once(toroni_router *router, uint64_t timeout_ns);

/* Handles messages until an error occurs, such as TORONI_INTERRUPTED, and returns that error. */
int toroni_router_run(toroni_router *router);

/* Does what toroni_subscriber_last_loss does. */
int toroni_router_last_loss(const toroni_router *router, toroni_loss *loss);

/* Does what toroni_subscriber_last_lost does. */
int toroni_router_last_lost(const toroni_router *router, toroni_lost *lost);

/* Does what toroni_subscriber_interrupt does. It also ends toroni_router_run between two messages. A handler may call
 * it. */
void toroni_router_interrupt(const toroni_router *router);

/* Does what toroni_subscriber_fd does. When the descriptor is readable, call toroni_router_poll. */
int toroni_router_fd(toroni_router *router, int *fd);

/* Return what the functions of the same names for a subscriber return. Within a handler they fail with
 * TORONI_REENTRANT and return 0, 0 and TORONI_NO_SLOT. */
uint64_t toroni_router_position(const toroni_router *router);
uint64_t toroni_router_lag_bytes(const toroni_router *router);
uint32_t toroni_router_slot(const toroni_router *router);

/* Reports what happened to the router's subscriber so far. */
int toroni_router_get_stats(const toroni_router *router, toroni_subscriber_stats *stats);

/* ---- commands ----------------------------------------------------------------------------------------- */

/* Sends commands to a feed of the sequencer, which puts those of all hosts in one order (docs/sequencer.md). A command
 * with its place in that order is an event, which the node of each host writes to the bus with the name of the feed.
 * Subscribe to that bus to read events: toroni_message.number is the number of the event, and toroni_message.origin names
 * the command. Its number has gaps: some events are no messages.
 *
 * Any number of threads may use it. */
typedef struct toroni_commands toroni_commands;

/* Names a command that was sent. Only its event says that it is part of the order. */
typedef struct toroni_sent {
    uint64_t number;   /* of the command in its series, as in the origin of its event */
    uint32_t series;   /* of the bus of commands */
    uint32_t reserved;
} toroni_sent;

/* A command that was sent and whose event is awaited. It has a subscriber of the feed's bus until the outcome is certain.
 * It belongs to one thread at a time. */
typedef struct toroni_pending toroni_pending;

/* toroni_echo.outcome. Later releases may add values. */
enum {
    TORONI_ECHO_EVENT = 1, /* the command is an event */
    TORONI_ECHO_LOST = 2,  /* the command never left this host, and the order says so: it was overwritten while no node
                              ran */
    TORONI_ECHO_MISSED = 3 /* events did not reach this program, and that of the command may be among them; waiting again
                              may still find it */
};

/* What became of a command. */
typedef struct toroni_echo {
    uint64_t number;   /* of the event, for TORONI_ECHO_EVENT */
    int outcome;       /* TORONI_ECHO_... */
    uint32_t reserved;
} toroni_echo;

/* Opens the bus of commands of a feed, FEED.commands, and creates it if it does not exist. If `options` is NULL, the
 * defaults apply. Its policy is always to wait, so `policy` of the options is not used; `existence` must be
 * TORONI_OPEN_OR_CREATE.
 * Creates a handle: close it with toroni_commands_close. Errors are those of toroni_bus_open. */
int toroni_commands_open(const char *feed, const toroni_open_options *options, toroni_commands **result);

/* Closes the handle. Commands that were sent stay on their way, and pending ones can still be awaited. */
void toroni_commands_close(toroni_commands *commands);

/* Sends a command. Waits while the leader cannot take more, at most for `timeout_ns`; after TORONI_TIMEOUT, nothing was
 * sent. Topic and payload have at most 1 MiB together.
 * Errors: TORONI_INVALID_TOPIC, TORONI_TOO_MANY_PARTICIPANTS, TORONI_PERMISSION_DENIED, and those of toroni_publish. */
int toroni_commands_send(const toroni_commands *commands, const char *topic, const void *data, size_t length,
                         uint64_t timeout_ns, toroni_sent *sent);

/* Subscribes to the events of the feed, and then sends a command as toroni_commands_send does.
 * Creates a handle: close it with toroni_pending_close.
 * Errors: TORONI_NOT_FOUND if no node has created the bus of events yet, those of toroni_bus_subscribe, and those of
 * toroni_commands_send. Nothing was sent then. */
int toroni_commands_send_and_watch(const toroni_commands *commands, const char *topic, const void *data, size_t length,
                                   uint64_t timeout_ns, toroni_pending **result);

/* Returns 1 if a message of the feed is the event of a command of this host, and 0 if not or if an argument is NULL. */
int toroni_commands_is_mine(const toroni_commands *commands, const toroni_message *message);

/* Returns 1 if a message of the feed is the event of this command, and 0 if not or if an argument is NULL. */
int toroni_sent_is_echo(const toroni_sent *sent, const toroni_message *message);

/* Reports which command is pending. */
int toroni_pending_sent(const toroni_pending *pending, toroni_sent *sent);

/* Waits until it is known what became of the command, at most for `timeout_ns`. TORONI_NO_MESSAGE means that this is not
 * known yet: the command may still become an event, and the call can be repeated. Lost events are an outcome, no error.
 * Errors: TORONI_UNLINKED, TORONI_FORKED, TORONI_CORRUPT, TORONI_OS. */
int toroni_pending_wait(toroni_pending *pending, uint64_t timeout_ns, toroni_echo *echo);

/* Closes the handle. The command stays sent. */
void toroni_pending_close(toroni_pending *pending);

/* ---- the state of a bus ------------------------------------------------------------------------------- */

/* A snapshot of a bus. What it points to lives as long as the snapshot. */
typedef struct toroni_stats toroni_stats;

typedef struct toroni_bus_stats {
    uint64_t capacity;        /* bytes of the ring */
    uint64_t topic_table_bytes;
    uint64_t tail;            /* bytes published since the bus was created: where the next message will start */
    uint64_t sequence;        /* of the next message: messages, and losses from elsewhere, that were published since the
                                 bus was created */
    uint64_t oldest_position; /* of the oldest message that can still be read */
    uint64_t created_ns;      /* when the bus was created */
    toroni_policy policy;     /* kind -1: one that this release does not know */
    int lock;                 /* TORONI_LOCK_..., or -1 */
    int notify;               /* TORONI_NOTIFY_..., or -1 */
    uint32_t topics;          /* number of names in the topic table */
    uint32_t max_publishers;
    uint32_t max_subscribers;
    uint32_t max_arrivals;
    int persistent;           /* not 0: toroni_clean keeps the bus */
    int on_disk;              /* not 0: its directory is on a file system that survives a reboot */
    int sees_publishers;      /* 0: this process may not read them, so the snapshot contains none */
    int sees_subscribers;     /* 0: this process may not read them, so the snapshot contains none */
    uint8_t multicast_address[4]; /* for TORONI_NOTIFY_MULTICAST, as in toroni_open_options; if address and port are */
    uint16_t multicast_port;      /* 0, both derive from the id of the bus */
    uint32_t retained_topics;     /* how many topics are retained */
    uint32_t max_retained_topics; /* how many can be; 0: the bus keeps no values */
    uint32_t missing_values;      /* how many of their values are missing (TORONI_VALUE_MISSING) */
    uint64_t retained_used_bytes; /* that are in use for values; they only grow */
    uint64_t retained_bytes;      /* that there are for values */
} toroni_bus_stats;

/* The participant that holds the writer lock. If it holds the lock for long, all other publishers wait, unless it is an
 * exclusive publisher. */
typedef struct toroni_lock_owner {
    uint32_t slot; /* among the publishers; TORONI_NO_SLOT for TORONI_LOCK_ROBUST */
    uint32_t pid;  /* of its process, in that process's PID namespace; for TORONI_LOCK_ROBUST, of its thread; 0 if it
                      is not known */
    int alive;     /* -1: this process cannot tell */
    int stopped;   /* not 0: it was stopped by SIGSTOP; it is not dead, so others wait for it */
    int dumping;   /* not 0: it crashed, and its core dump is being written; with TORONI_LOCK_LEASE the next publisher
                      takes over at once, with TORONI_LOCK_ROBUST all wait until the dump is written */
    int exclusive; /* not 0: it is an exclusive publisher, which keeps the lock until it is closed; other publishers get
                      TORONI_EXCLUSIVE */
} toroni_lock_owner;

/* A publishing participant. */
typedef struct toroni_publisher_info {
    const char *name;
    uint32_t slot;
    uint32_t pid;        /* in its own PID namespace */
    int alive;
    int stopped;         /* by SIGSTOP */
    uint64_t messages;   /* that it published; for an inlet, with the losses */
    uint64_t bytes;      /* of the stream that these messages took */
    uint64_t waits;      /* how often it waited for slow subscribers */
    uint64_t waited_ns;  /* duration of these waits in all */
    uint64_t overwrites; /* how often it overwrote what a slow subscriber had not read, after it had waited */
    uint64_t wakes;      /* wake-ups that it sent */
    uint64_t started_ns; /* when it opened the bus for publishing */
    int same_pid_namespace; /* 0: its PID namespace is not that of the caller */
    int dumping;         /* not 0: it crashed, and its core dump is being written, as far as the PID namespace of the
                            caller shows */
} toroni_publisher_info;

/* A subscriber of the bus. */
typedef struct toroni_subscriber_info {
    const char *name;
    uint32_t slot;
    uint32_t pid;           /* in its own PID namespace */
    int alive;
    int stopped;            /* by SIGSTOP */
    int gating;             /* not 0: publishers wait for it */
    int lapped_now;         /* not 0: it was overtaken since it last published its position */
    uint64_t position;      /* up to which it has read, as last published */
    uint64_t lag_bytes;     /* from there to the end of the stream */
    uint64_t received;
    uint64_t lost_messages;
    uint64_t lapses;
    uint64_t started_ns;    /* when it subscribed */
    int same_pid_namespace; /* as in toroni_publisher_info */
    int patterns_truncated; /* 1: it has more patterns than its slot has space for; -1: they cannot be read */
    const char *const *patterns; /* the patterns in its slot, NULL if there are none; see toroni_matches */
    size_t pattern_count;
    int dumping;            /* as in toroni_publisher_info */
    uint64_t losses;        /* how often it was told that messages from elsewhere were lost, at most UINT32_MAX */
    uint64_t lost_on_the_way; /* the sum of toroni_lost.messages of these losses */
} toroni_subscriber_info;

/* Takes a snapshot, without disturbing any process. Needs permission to read the ring.
 * Creates a handle: close it with toroni_stats_close. Errors are those of toroni_bus_open. */
int toroni_bus_take_stats(const toroni_bus *bus, toroni_stats **result);

/* Closes the handle. */
void toroni_stats_close(toroni_stats *stats);

/* Return the parts of a snapshot:
 *   - the bus;
 *   - the participant that held the writer lock, or NULL if none did;
 *   - the publishing participants and the subscribers: their number, and each by its index from 0;
 *   - the names of the files in `sockets/`, each <slot>.<generation> of a subscriber.
 * An index that is too large returns NULL. If `stats` is NULL, they return NULL and 0. */
const toroni_bus_stats *toroni_stats_bus(const toroni_stats *stats);
const toroni_lock_owner *toroni_stats_lock_owner(const toroni_stats *stats);
size_t toroni_stats_publisher_count(const toroni_stats *stats);
const toroni_publisher_info *toroni_stats_publisher(const toroni_stats *stats, size_t index);
size_t toroni_stats_subscriber_count(const toroni_stats *stats);
const toroni_subscriber_info *toroni_stats_subscriber(const toroni_stats *stats, size_t index);
size_t toroni_stats_socket_count(const toroni_stats *stats);
const char *toroni_stats_socket(const toroni_stats *stats, size_t index);

/* ---- topics ------------------------------------------------------------------------------------------- */

/* Check whether a subscriber with the pattern receives a message on the topic, and write 1 or 0. For the second
 * function, the message is published to the topic and to everything below it.
 * Errors: TORONI_INVALID_PATTERN, TORONI_INVALID_TOPIC. */
int toroni_matches(const char *pattern, const char *topic, int *result);
int toroni_matches_descendants(const char *pattern, const char *topic, int *result);

/* A list of the topics of a bus, sorted by name. What it points to lives as long as the list. */
typedef struct toroni_topics toroni_topics;

/* toroni_topic_info.value */
enum {
    TORONI_TOPIC_NOT_RETAINED = 0,
    TORONI_TOPIC_NO_VALUE = 1, /* the topic is retained, but nothing was published since, or the value was cleared */
    TORONI_TOPIC_KEPT = 2,     /* the topic has a value */
    TORONI_TOPIC_MISSING = 3   /* the bus had no room for the value */
};

/* What the ring holds of one topic, and its value. */
typedef struct toroni_topic_info {
    const char *name;
    uint64_t messages; /* that can still be read; 0 if the topic has not been used for long */
    uint64_t bytes;    /* of the payloads of these messages */
    int value;         /* TORONI_TOPIC_..., or -1 for one that this release does not know */
    uint64_t value_sequence;     /* of the value; 0 if there is none, as the next two */
    uint64_t value_bytes;        /* of its payload; for TORONI_TOPIC_MISSING, as toroni_missing.length */
    uint64_t value_published_ns; /* when it was published; 0 if that is not known */
} toroni_topic_info;

/* Lists the topics. Reads the whole ring, without disturbing any process. Needs permission to read the ring.
 * Creates a handle: close it with toroni_topics_close. Errors are those of toroni_bus_open. */
int toroni_bus_take_topics(const toroni_bus *bus, toroni_topics **result);

/* Closes the handle. */
void toroni_topics_close(toroni_topics *topics);

/* Return the number of topics, and each topic by its index from 0. An index that is too large returns NULL. If
 * `topics` is NULL, they return 0 and NULL. */
size_t toroni_topics_count(const toroni_topics *topics);
const toroni_topic_info *toroni_topics_at(const toroni_topics *topics, size_t index);

/* ---- buses as files ----------------------------------------------------------------------------------- */

/* The functions below need no opened bus, and any number of threads may call them at the same time. */

/* A list of the buses of a directory, sorted by name. What it points to lives as long as the list. */
typedef struct toroni_bus_list toroni_bus_list;

typedef struct toroni_bus_entry {
    const char *name;
    const char *path;    /* the directory of the bus */
    const char *problem; /* why the bus cannot be opened; NULL: it can be, given the permissions */
    uint64_t capacity;   /* bytes of the ring; 0 if the header of the bus cannot be read */
    int in_use;          /* 1: a process has it open; 0: none has; -1: this process cannot tell */
    int persistent;      /* not 0: toroni_clean keeps it */
} toroni_bus_entry;

/* Returns the directory of buses for calls that name none: $TORONI_DIR if it is set and not empty, or else
 * /dev/shm/toroni. The string lives until the next call of this function in the same thread. */
const char *toroni_default_directory(void);

/* Lists the buses in `directory`, or in the default directory if it is NULL, without opening them. If the directory
 * does not exist, the list is empty.
 * Creates a handle: close it with toroni_bus_list_close.
 * Errors: TORONI_INVALID_SETTING if `directory` is empty, TORONI_PERMISSION_DENIED, TORONI_BAD_DIRECTORY, TORONI_OS. */
int toroni_list_buses(const char *directory, toroni_bus_list **result);

/* Closes the handle. */
void toroni_bus_list_close(toroni_bus_list *list);

/* Return the number of buses, and each bus by its index from 0. An index that is too large returns NULL. If `list` is
 * NULL, they return 0 and NULL. */
size_t toroni_bus_list_count(const toroni_bus_list *list);
const toroni_bus_entry *toroni_bus_list_at(const toroni_bus_list *list, size_t index);

/* flags of toroni_clean */
enum {
    TORONI_CLEAN_DRY_RUN = 1,   /* only report what would be done */
    TORONI_CLEAN_PERSISTENT = 2 /* also remove a persistent bus; needs `name` */
};

/* What toroni_clean did, or would do. What it points to lives as long as the report. */
typedef struct toroni_clean_report toroni_clean_report;

/* toroni_clean_action.kind */
enum {
    TORONI_CLEANED_SLOT = 0,    /* freed the slot of a dead participant */
    TORONI_CLEANED_SOCKET = 1,  /* removed the socket of a dead subscriber */
    TORONI_CLEANED_BUS = 2,     /* removed a bus that no process has open */
    TORONI_CLEANED_LEFTOVER = 3 /* removed an incomplete bus, whose creation or removal was cut short by a death */
};

typedef struct toroni_clean_action {
    int kind;         /* TORONI_CLEANED_..., or -1 for a kind that this release does not know */
    uint32_t slot;    /* for TORONI_CLEANED_SLOT */
    const char *bus;  /* for TORONI_CLEANED_SLOT, the name of the bus; else NULL */
    const char *file; /* for TORONI_CLEANED_SLOT, "publishers" or "readers"; else NULL */
    const char *path; /* what was removed; NULL for TORONI_CLEANED_SLOT */
    const char *text; /* all of this as a readable sentence */
} toroni_clean_action;

/* Something that toroni_clean did not touch, although it may be a leftover. */
typedef struct toroni_clean_skip {
    const char *path;
    const char *why;
} toroni_clean_skip;

/* Cleans up after dead processes: frees the slots and sockets of dead participants, and removes buses that no process
 * has open, unless they are persistent. It cleans all buses of `directory` (NULL: the default directory), or only the
 * bus called `name` if that is not NULL. `flags` is TORONI_CLEAN_..., combined, or 0.
 *
 * A bus whose header is damaged may be persistent, so it is removed only by its name. A bus that any process has open,
 * including this one, is never removed. What could not be cleaned is not an error: the report lists it with the
 * reason.
 *
 * Creates a handle: close it with toroni_clean_report_close.
 * Errors: TORONI_INVALID_NAME, TORONI_INVALID_SETTING if `directory` is empty, TORONI_NOT_FOUND if there is no bus of
 * that name, TORONI_PERMISSION_DENIED, TORONI_BAD_DIRECTORY, TORONI_OS. */
int toroni_clean(const char *directory, const char *name, uint32_t flags, toroni_clean_report **result);

/* Closes the handle. */
void toroni_clean_report_close(toroni_clean_report *report);

/* Return what was done, in that order, and what was skipped: the number, and each item by its index from 0. An index
 * that is too large returns NULL. If `report` is NULL, they return 0 and NULL. */
size_t toroni_clean_report_action_count(const toroni_clean_report *report);
const toroni_clean_action *toroni_clean_report_action(const toroni_clean_report *report, size_t index);
size_t toroni_clean_report_skip_count(const toroni_clean_report *report);
const toroni_clean_skip *toroni_clean_report_skip(const toroni_clean_report *report, size_t index);

#ifdef __cplusplus
}
#endif

#endif
