//! Converts statistics to the classes of `python/toroni/_stats.py`.

use crate::settings::{Policy, name_of_lock, name_of_notify};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};
use std::time::{SystemTime, UNIX_EPOCH};
use toroni::{
    BusStats, LockOwner, PublisherStats, Reopened, RetainedStats, SubscriberSlotStats, TopicStats,
    ValueStats,
};

/// Makes an instance of a class that is written in Python.
pub(crate) fn made<'py>(
    py: Python<'py>,
    class: &str,
    fields: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("toroni").map(Bound::unbind))?.bind(py);
    module.getattr(class)?.call((), Some(fields))
}

/// Makes an instance of a class with the given fields.
macro_rules! instance {
    ($py:expr, $class:literal, { $($name:ident: $value:expr),+ $(,)? }) => {{
        let fields = PyDict::new($py);
        $(fields.set_item(stringify!($name), $value)?;)+
        $crate::stats::made($py, $class, &fields)
    }};
}
pub(crate) use instance;

/// Does what `instance` does, for a participant: adds the fields that publishers and subscribers have in common.
macro_rules! instance_of_participant {
    ($py:expr, $class:literal, $one:expr, { $($name:ident: $value:expr),+ $(,)? }) => {
        instance!($py, $class, {
            slot: $one.slot,
            name: &$one.name,
            pid: $one.pid,
            same_pid_namespace: $one.same_pid_namespace,
            alive: $one.alive,
            stopped: $one.stopped,
            dumping: $one.dumping,
            started_ns: since_1970_ns($one.started),
            $($name: $value),+
        })
    };
}

/// Returns nanoseconds since 1970 (UTC).
pub(crate) fn since_1970_ns(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

pub(crate) fn of_bus<'py>(py: Python<'py>, stats: &BusStats) -> PyResult<Bound<'py, PyAny>> {
    let owner = stats.lock_owner.as_ref().map(|owner| of_owner(py, owner)).transpose()?;
    let publishers = all(py, stats.publishers.as_deref(), of_publisher)?;
    let subscribers = all(py, stats.subscribers.as_deref(), of_subscriber)?;
    instance!(py, "BusStats", {
        name: &stats.name,
        path: stats.path.as_path(),
        id: stats.id.to_string(),
        capacity: stats.capacity,
        topic_table_bytes: stats.topic_table_bytes,
        policy: Policy(stats.policy),
        lock: name_of_lock(stats.lock),
        notify: name_of_notify(stats.notify),
        persistent: stats.persistent,
        on_disk: stats.on_disk,
        created_ns: since_1970_ns(stats.created),
        max_publishers: stats.max_publishers,
        max_subscribers: stats.max_subscribers,
        max_arrivals: stats.max_arrivals,
        tail: stats.tail,
        sequence: stats.sequence,
        oldest_position: stats.oldest_position,
        topics: stats.topics,
        retained: of_retained(py, &stats.retained)?,
        lock_owner: owner,
        publishers: publishers,
        subscribers: subscribers,
        sockets: &stats.sockets,
    })
}

pub(crate) fn of_topic<'py>(py: Python<'py>, topic: &TopicStats) -> PyResult<Bound<'py, PyAny>> {
    instance!(py, "TopicStats", {
        name: &topic.name,
        messages: topic.messages,
        bytes: topic.bytes,
        value: topic.value.as_ref().map(|value| of_value(py, value)).transpose()?,
    })
}

fn of_value<'py>(py: Python<'py>, value: &ValueStats) -> PyResult<Bound<'py, PyAny>> {
    let (state, sequence, bytes, published) = match *value {
        ValueStats::Kept { sequence, bytes, published } => {
            ("kept", Some(sequence), Some(bytes), published)
        }
        ValueStats::Missing { sequence, bytes } => ("missing", Some(sequence), Some(bytes), None),
        _ => ("none", None, None, None),
    };
    instance!(py, "ValueStats", {
        state: state,
        sequence: sequence,
        bytes: bytes,
        timestamp_ns: published.map(since_1970_ns),
    })
}

fn of_retained<'py>(py: Python<'py>, stats: &RetainedStats) -> PyResult<Bound<'py, PyAny>> {
    instance!(py, "RetainedStats", {
        topics: stats.topics,
        max_topics: stats.max_topics,
        missing: stats.missing,
        used_bytes: stats.used_bytes,
        bytes: stats.bytes,
    })
}

pub(crate) fn of_reopened<'py>(
    py: Python<'py>,
    reopened: &Reopened,
) -> PyResult<Bound<'py, PyAny>> {
    let (kept, messages) = match reopened {
        Reopened::Kept { messages } => (true, *messages),
        _ => (false, 0),
    };
    instance!(py, "Reopened", { kept: kept, messages: messages })
}

fn all<'py, T>(
    py: Python<'py>,
    of: Option<&[T]>,
    make: impl Fn(Python<'py>, &T) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let Some(of) = of else { return Ok(None) };
    let made = of.iter().map(|one| make(py, one)).collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, made).map(Some)
}

fn of_owner<'py>(py: Python<'py>, owner: &LockOwner) -> PyResult<Bound<'py, PyAny>> {
    instance!(py, "LockOwner", {
        slot: owner.slot,
        pid: owner.pid,
        alive: owner.alive,
        stopped: owner.stopped,
        dumping: owner.dumping,
        exclusive: owner.exclusive,
    })
}

fn of_publisher<'py>(py: Python<'py>, one: &PublisherStats) -> PyResult<Bound<'py, PyAny>> {
    instance_of_participant!(py, "PublisherStats", one, {
        messages: one.messages,
        bytes: one.bytes,
        waits: one.waits,
        waited: one.waited.as_secs_f64(),
        overwrites: one.overwrites,
        wakes: one.wakes,
    })
}

fn of_subscriber<'py>(py: Python<'py>, one: &SubscriberSlotStats) -> PyResult<Bound<'py, PyAny>> {
    instance_of_participant!(py, "SubscriberSlotStats", one, {
        gating: one.gating,
        position: one.position,
        lag_bytes: one.lag_bytes,
        received: one.received,
        lost_messages: one.lost_messages,
        lapses: one.lapses,
        losses: one.losses,
        lost_on_the_way: one.lost_on_the_way,
        lapped_now: one.lapped_now,
        patterns: one.patterns.as_ref().map(|all| {
            all.iter().map(|pattern| pattern.as_str()).collect::<Vec<_>>()
        }),
        patterns_truncated: one.patterns_truncated,
    })
}
