//! Buses as files: listing them, and cleaning up after dead processes.

use crate::errors;
use crate::stats::instance;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use toroni::admin::{self, BusEntry, CleanAction, CleanReport};

/// Returns the directory of buses for calls that name none: $TORONI_DIR if it is set and not empty, or else
/// /dev/shm/toroni.
#[pyfunction]
pub(crate) fn default_directory() -> PathBuf {
    admin::default_directory()
}

/// Lists the buses of a directory without opening them: a list of toroni.BusEntry, sorted by name. The default for
/// directory is default_directory(). If the directory does not exist, the list is empty.
///
/// Raises Invalid if directory is empty, PermissionDenied, System, or another toroni.Error.
#[pyfunction]
#[pyo3(signature = (directory=None))]
pub(crate) fn buses(py: Python<'_>, directory: Option<PathBuf>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    let found = py.detach(|| admin::list(directory.as_deref()));
    let found = found.map_err(|error| errors::on_directory(py, error))?;
    found.iter().map(|entry| of_entry(py, entry)).collect()
}

/// Cleans up after dead processes and returns a toroni.CleanReport. It frees their slots and sockets, and removes
/// buses that no process has open, unless they are persistent. It cleans all buses of a directory, or only the one with
/// the given name. A bus whose header is damaged may be persistent, so it is removed only by its name. With
/// persistent, a bus that is given by name is removed even if it is persistent. With dry_run, the report says what
/// would be done. What could not be cleaned is not an error; the report lists it.
///
/// Raises Invalid, NotFound if there is no bus of that name, PermissionDenied, System, or another toroni.Error.
#[pyfunction]
#[pyo3(signature = (name=None, *, directory=None, persistent=false, dry_run=false))]
pub(crate) fn clean<'py>(
    py: Python<'py>,
    name: Option<&str>,
    directory: Option<PathBuf>,
    persistent: bool,
    dry_run: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let directory = directory.as_deref();
    let report = match (name, persistent) {
        (name, false) => py.detach(|| admin::clean(directory, name, dry_run)),
        (Some(name), true) => py.detach(|| admin::clean_persistent(directory, name, dry_run)),
        (None, true) => {
            let message = "persistent buses are removed one by one: give the name of one";
            return Err(errors::invalid(py, message.to_owned()));
        }
    };
    of_report(py, &report.map_err(|error| errors::on_directory(py, error))?)
}

fn of_entry<'py>(py: Python<'py>, entry: &BusEntry) -> PyResult<Bound<'py, PyAny>> {
    instance!(py, "BusEntry", {
        name: &entry.name,
        path: entry.path.as_path(),
        capacity: entry.capacity,
        in_use: entry.in_use,
        persistent: entry.persistent,
        problem: entry.problem.as_deref(),
    })
}

fn of_report<'py>(py: Python<'py>, report: &CleanReport) -> PyResult<Bound<'py, PyAny>> {
    let actions = report.actions.iter().map(|action| of_action(py, action));
    instance!(py, "CleanReport", {
        actions: actions.collect::<PyResult<Vec<_>>>()?,
        skipped: &report.skipped,
    })
}

fn of_action<'py>(py: Python<'py>, action: &CleanAction) -> PyResult<Bound<'py, PyAny>> {
    let (kind, path) = match action {
        CleanAction::FreeSlot { .. } => ("slot", None),
        CleanAction::RemoveSocket(path) => ("socket", Some(path.as_path())),
        CleanAction::RemoveBus(path) => ("bus", Some(path.as_path())),
        CleanAction::RemoveLeftover(path) => ("leftover", Some(path.as_path())),
        _ => ("other", None),
    };
    let (bus, file, slot) = match action {
        CleanAction::FreeSlot { bus, file, slot } => (Some(bus), Some(*file), Some(*slot)),
        _ => (None, None, None),
    };
    instance!(py, "CleanAction", {
        kind: kind,
        text: action.to_string(),
        path: path,
        bus: bus,
        file: file,
        slot: slot,
    })
}
