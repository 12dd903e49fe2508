//! Where iceoryx2 keeps files, and the leftovers of a run: names in shared memory that it does not remove by itself, and
//! all files of a run that was killed.

use std::fs;
use std::path::Path;

use toroni_bench_harness::run_directory::RunDirectory;

/// Directory of its files. It is not the run directory, because the names of its sockets have 79 bytes after the prefix,
/// and their whole path at most 107.
pub(crate) const ROOT: &str = "/tmp/tbx";
/// Directory of its shared memory, which has no subdirectories.
const SHARED_MEMORY: &str = "/dev/shm";
const MARK: &str = "tb";

/// Returns the prefix of all files and shared memory of a run. It ends with a dot, so that no prefix begins with another
/// one.
pub(crate) fn prefix(directory: &RunDirectory) -> String {
    format!("{MARK}{}.", directory.name)
}

/// Removes the leftovers of a run when it is dropped.
pub(crate) struct Traces(String);

impl Traces {
    pub(crate) fn of(directory: &RunDirectory) -> Traces {
        Traces(prefix(directory))
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        remove(&|name| name.starts_with(&self.0));
    }
}

/// Removes the leftovers of runs whose processes are dead.
pub(crate) fn remove_of_the_dead() {
    remove(&|name| {
        let process = name.strip_prefix(MARK).and_then(|rest| rest.split('-').next());
        let process = process.and_then(|digits| digits.parse::<u32>().ok());
        process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists())
    });
}

fn remove(condemned: &dyn Fn(&str) -> bool) {
    for folder in [SHARED_MEMORY, ROOT, "/tmp/tbx/nodes", "/tmp/tbx/services"] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(condemned) {
                // It belongs to another user, or is already gone. A directory is left alone.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}
