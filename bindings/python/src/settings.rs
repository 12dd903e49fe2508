//! Settings as Python writes them: strings, seconds, and the class `Policy`.

use crate::errors;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::time::Duration;
use toroni::{LockKind, NotifyKind, Start, WaitStrategy};

/// What publishers do when the ring is full because a subscriber is slow.
///
/// Policy.wait(limit) waits for the slowest subscriber, at most limit seconds, and then overwrites: that
/// subscriber is told its loss. Policy.wait(None) waits as long as it lives. Policy.overwrite() never waits.
/// Policy.bounded(budget, per): all publishers together wait at most budget seconds in each interval of per
/// seconds. The default of a bus is Policy.wait(0.1).
#[pyclass(frozen, eq, module = "toroni")]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Policy(pub(crate) toroni::Policy);

#[pymethods]
impl Policy {
    /// Waits at most limit seconds, then overwrites; None: as long as the subscriber lives.
    #[staticmethod]
    #[pyo3(signature = (limit=0.1))]
    fn wait(py: Python<'_>, limit: Option<f64>) -> PyResult<Self> {
        let limit = limit.map(|limit| seconds(py, "limit", limit)).transpose()?;
        Ok(Self(toroni::Policy::Wait { limit }))
    }

    /// Never waits: for data of which only the newest counts.
    #[staticmethod]
    fn overwrite() -> Self {
        Self(toroni::Policy::Overwrite)
    }

    /// All publishers together wait at most budget seconds in each interval of per seconds.
    #[staticmethod]
    fn bounded(py: Python<'_>, budget: f64, per: f64) -> PyResult<Self> {
        let (budget, per) = (seconds(py, "budget", budget)?, seconds(py, "per", per)?);
        Ok(Self(toroni::Policy::Bounded { budget, per }))
    }

    fn __hash__(&self) -> u64 {
        match self.0 {
            toroni::Policy::Wait { limit } => {
                limit.map_or(1, |limit| 2 + u64::from(limit.subsec_nanos()))
            }
            toroni::Policy::Bounded { budget, .. } => 3 + u64::from(budget.subsec_nanos()),
            _ => 0,
        }
    }

    fn __repr__(&self) -> String {
        match self.0 {
            toroni::Policy::Wait { limit: None } => "Policy.wait(None)".to_owned(),
            toroni::Policy::Wait { limit: Some(limit) } => {
                format!("Policy.wait({:?})", limit.as_secs_f64())
            }
            toroni::Policy::Overwrite => "Policy.overwrite()".to_owned(),
            toroni::Policy::Bounded { budget, per } => {
                format!("Policy.bounded({:?}, {:?})", budget.as_secs_f64(), per.as_secs_f64())
            }
            other => format!("<Policy {other:?}>"),
        }
    }
}

/// A number of seconds.
pub(crate) fn seconds(py: Python<'_>, name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| {
        errors::invalid(py, format!("{name} is {value}, but must be a number of seconds from 0 on"))
    })
}

/// A time-out in seconds; `None` is none, and so is infinity.
pub(crate) fn timeout(py: Python<'_>, value: Option<f64>) -> PyResult<Option<Duration>> {
    match value {
        None | Some(f64::INFINITY) => Ok(None),
        // More than a hundred years.
        Some(value) if value > 4e9 => Ok(None),
        Some(value) => seconds(py, "timeout", value).map(Some),
    }
}

/// One of a few words.
fn word<T: Copy>(py: Python<'_>, name: &str, value: &str, words: &[(&str, T)]) -> PyResult<T> {
    let found = words.iter().find(|(word, _)| *word == value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        errors::invalid(py, format!("{name} is {value:?}, but must be one of {}", known.join(", ")))
    })
}

const LOCKS: [(&str, LockKind); 2] = [("lease", LockKind::Lease), ("robust", LockKind::Robust)];

pub(crate) fn lock(py: Python<'_>, value: &str) -> PyResult<LockKind> {
    word(py, "lock", value, &LOCKS)
}

pub(crate) fn name_of_lock(lock: LockKind) -> &'static str {
    LOCKS.iter().find(|(_, kind)| *kind == lock).map_or("unknown", |(word, _)| word)
}

/// `multicast` may be followed by a colon and the group's address and port.
pub(crate) fn notify(py: Python<'_>, value: &str) -> PyResult<NotifyKind> {
    if let Some(group) = value.strip_prefix("multicast:") {
        let group = group.parse().map_err(|_| {
            errors::invalid(
                py,
                format!(
                    "notify names the group {group:?}, but must be like multicast:239.255.1.2:50000"
                ),
            )
        })?;
        return Ok(NotifyKind::Multicast { group: Some(group) });
    }
    word(
        py,
        "notify",
        value,
        &[
            ("futex", NotifyKind::Futex),
            ("datagram", NotifyKind::Datagram),
            ("multicast", NotifyKind::Multicast { group: None }),
        ],
    )
}

pub(crate) fn name_of_notify(notify: NotifyKind) -> String {
    match notify {
        NotifyKind::Futex => "futex".to_owned(),
        NotifyKind::Datagram => "datagram".to_owned(),
        NotifyKind::Multicast { group: None } => "multicast".to_owned(),
        NotifyKind::Multicast { group: Some(group) } => format!("multicast:{group}"),
        _ => "unknown".to_owned(),
    }
}

pub(crate) fn wait(py: Python<'_>, value: &str) -> PyResult<WaitStrategy> {
    word(
        py,
        "wait",
        value,
        &[
            ("spin", WaitStrategy::Spin),
            ("yield", WaitStrategy::Yield),
            ("backoff", WaitStrategy::Backoff),
            ("block", WaitStrategy::Block),
        ],
    )
}

/// `"latest"`, `"oldest"`, or the position of a message.
pub(crate) fn start(value: &Bound<'_, PyAny>) -> PyResult<Start> {
    if let Ok(position) = value.extract::<u64>() {
        return Ok(Start::Position(position));
    }
    let Ok(value_text) = value.extract::<String>() else {
        return Err(PyTypeError::new_err(
            "start is \"latest\", \"oldest\", or the position of a message",
        ));
    };
    word(value.py(), "start", &value_text, &[("latest", Start::Latest), ("oldest", Start::Oldest)])
}
