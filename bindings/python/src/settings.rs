//! Conversions of settings from Python, and the class `Policy`.

use crate::errors;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::path::PathBuf;
use std::time::Duration;
use toroni::{Continue, LockKind, NotifyKind, Start, WaitStrategy};

/// What publishers do when the ring is full because a subscriber is slow.
///
/// Policy.wait(limit) waits for the slowest subscriber, at most limit seconds, and then overwrites what it has not
/// read; that subscriber gets Lapped. Policy.wait(None) waits as long as the subscriber lives. Policy.overwrite() never
/// waits. With Policy.bounded(budget, per), all publishers together wait at most budget seconds in each interval of per
/// seconds. The default of a bus is Policy.wait(0.1). Where a policy is an argument, "overwrite" stands for
/// Policy.overwrite(), "wait" for Policy.wait(), and "wait:forever" for Policy.wait(None).
#[pyclass(frozen, eq, module = "toroni")]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Policy(pub(crate) toroni::Policy);

#[pymethods]
impl Policy {
    /// Waits at most limit seconds and then overwrites; with None, waits as long as the subscriber lives.
    #[staticmethod]
    #[pyo3(signature = (limit=0.1))]
    fn wait(py: Python<'_>, limit: Option<f64>) -> PyResult<Self> {
        let limit = limit.map(|limit| seconds(py, "limit", limit)).transpose()?;
        Ok(Self(toroni::Policy::Wait { limit }))
    }

    /// Never waits. For data of which only the newest matters.
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

/// Converts a number of seconds.
pub(crate) fn seconds(py: Python<'_>, name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| {
        errors::invalid(
            py,
            format!("{name} is {value}, but must be a number of seconds, at least 0"),
        )
    })
}

/// Converts a timeout in seconds. `None` and infinity mean no timeout.
pub(crate) fn timeout(py: Python<'_>, value: Option<f64>) -> PyResult<Option<Duration>> {
    match value {
        None | Some(f64::INFINITY) => Ok(None),
        // More than a hundred years.
        Some(value) if value > 4e9 => Ok(None),
        Some(value) => seconds(py, "timeout", value).map(Some),
    }
}

/// Returns the message for an argument that breaks a rule.
fn explanation(name: &str, value: &Bound<'_, PyAny>, rule: &str) -> String {
    let value = value.repr().map_or_else(|_| "of another type".to_owned(), |text| text.to_string());
    format!("{name} is {value}, but must be {rule}")
}

/// Replaces an error of Python's conversion by one that names the argument. An error of the object itself, such as one
/// that its `__index__` raises, stays unchanged.
#[cold]
fn unreadable(error: PyErr, name: &str, value: &Bound<'_, PyAny>, rule: &str) -> PyErr {
    let py = value.py();
    if error.is_instance_of::<PyOverflowError>(py) {
        return errors::invalid(py, explanation(name, value, rule));
    }
    if error.is_instance_of::<PyTypeError>(py) {
        return wrong_type(name, value, rule);
    }
    error
}

/// Returns a `TypeError` for an argument that breaks a rule.
#[cold]
pub(crate) fn wrong_type(name: &str, value: &Bound<'_, PyAny>, rule: &str) -> PyErr {
    PyTypeError::new_err(explanation(name, value, rule))
}

/// Converts an integer. `Invalid` if it is out of the range of the type.
fn number<T>(name: &str, value: &Bound<'_, PyAny>, rule: &str) -> PyResult<T>
where
    for<'a, 'py> T: FromPyObject<'a, 'py, Error = PyErr>,
{
    value.extract().map_err(|error| unreadable(error, name, value, rule))
}

pub(crate) fn integer<T>(name: &str, value: &Bound<'_, PyAny>) -> PyResult<T>
where
    for<'a, 'py> T: FromPyObject<'a, 'py, Error = PyErr>,
{
    number(
        name,
        value,
        &format!("an integer of at least 0, of at most {} bits", size_of::<T>() * 8),
    )
}

pub(crate) fn flag(name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    value.extract().map_err(|_| wrong_type(name, value, "True or False"))
}

pub(crate) fn string(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.extract().map_err(|_| wrong_type(name, value, "a string"))
}

pub(crate) fn path(name: &str, value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    value.extract().map_err(|error| unreadable(error, name, value, "a string or a path"))
}

/// Converts a string, or an iterable of strings.
pub(crate) fn strings(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if value.is_instance_of::<PyString>() {
        return Ok(vec![value.extract()?]);
    }
    let wrong = || wrong_type(name, value, "a string or a list of strings");
    value
        .try_iter()
        .map_err(|_| wrong())?
        // An iterator may raise an error of its own.
        .map(|item| item?.extract().map_err(|_| wrong()))
        .collect()
}

/// Converts permission bits. Numbers above 0o777 are refused, such as 600 without the octal prefix.
pub(crate) fn mode(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u32> {
    let mode = integer(name, value)?;
    if mode > 0o777 {
        let rule = "permission bits up to 0o777, such as 0o600";
        return Err(errors::invalid(value.py(), explanation(name, value, rule)));
    }
    Ok(mode)
}

/// Converts one of a few words. `more` is appended to the list of them in the error.
pub(crate) fn word<T: Copy>(
    py: Python<'_>,
    name: &str,
    value: &str,
    words: &[(&str, T)],
    more: &str,
) -> PyResult<T> {
    let found = words.iter().find(|(word, _)| *word == value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let rule = list(words, more);
        errors::invalid(py, format!("{name} is {value:?}, but must be {rule}"))
    })
}

fn list<T>(words: &[(&str, T)], more: &str) -> String {
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    format!("one of {}{more}", known.join(", "))
}

/// Converts a `Policy`, or the word for one that needs no duration.
pub(crate) fn policy(name: &str, value: &Bound<'_, PyAny>) -> PyResult<toroni::Policy> {
    if let Ok(policy) = value.cast::<Policy>() {
        return Ok(policy.get().0);
    }
    let words = [
        ("overwrite", toroni::Policy::Overwrite),
        ("wait", toroni::Policy::default()),
        ("wait:forever", toroni::Policy::Wait { limit: None }),
    ];
    let more = ", or a toroni.Policy, such as Policy.wait(0.5)";
    if value.is_instance_of::<PyString>() {
        return word(value.py(), name, &string(name, value)?, &words, more);
    }
    Err(wrong_type(name, value, &list(&words, more)))
}

const LOCKS: [(&str, LockKind); 2] = [("lease", LockKind::Lease), ("robust", LockKind::Robust)];

pub(crate) fn lock(name: &str, value: &Bound<'_, PyAny>) -> PyResult<LockKind> {
    word(value.py(), name, &string(name, value)?, &LOCKS, "")
}

pub(crate) fn name_of_lock(lock: LockKind) -> &'static str {
    LOCKS.iter().find(|(_, kind)| *kind == lock).map_or("unknown", |(word, _)| word)
}

/// `multicast` may be followed by a colon and the group's address and port.
pub(crate) fn notify(name: &str, value: &Bound<'_, PyAny>) -> PyResult<NotifyKind> {
    let text = string(name, value)?;
    if let Some(group) = text.strip_prefix("multicast:") {
        let group = group.parse().map_err(|_| {
            let rule = "of the form multicast:239.255.1.2:50000";
            errors::invalid(value.py(), explanation(name, value, rule))
        })?;
        return Ok(NotifyKind::Multicast { group: Some(group) });
    }
    word(
        value.py(),
        name,
        &text,
        &[
            ("futex", NotifyKind::Futex),
            ("datagram", NotifyKind::Datagram),
            ("multicast", NotifyKind::Multicast { group: None }),
        ],
        ", multicast:ADDRESS:PORT",
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
        "",
    )
}

pub(crate) fn after_loss(py: Python<'_>, value: &str) -> PyResult<Continue> {
    let words = [("oldest", Continue::Oldest), ("newest", Continue::Newest)];
    word(py, "after_loss", value, &words, "")
}

/// Converts `"latest"`, `"oldest"`, the position of a message, or `("sequence", n)`.
pub(crate) fn start(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Start> {
    const WORDS: [(&str, Start); 2] = [("latest", Start::Latest), ("oldest", Start::Oldest)];
    const MORE: &str = ", the position of a message, or (\"sequence\", n)";
    if value.is_instance_of::<PyString>() {
        return word(value.py(), name, &string(name, value)?, &WORDS, MORE);
    }
    let rule = list(&WORDS, MORE);
    if let Ok((word, sequence)) = value.extract::<(String, Bound<'_, PyAny>)>()
        && word == "sequence"
    {
        return number(name, &sequence, &rule).map(Start::Sequence);
    }
    number(name, value, &rule).map(Start::Position)
}
