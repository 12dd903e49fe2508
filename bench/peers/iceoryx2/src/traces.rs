//! Where iceoryx2 keeps files, and what remains of a run: names in shared memory that it does not remove
//! by itself, and everything of a run that was killed.

use std::fs;
use std::path::Path;

use toroni_bench_harness::run_directory::RunDirectory;

/// Its files. Not the directory of the run: names of its sockets have 79 bytes behind the prefix, and
/// with all of their path at most 107.
pub(crate) const ROOT: &str = "/tmp/tbx";
/// Its shared memory has no directories.
const SHARED_MEMORY: &str = "/dev/shm";
const MARK: &str = "tb";

/// Before the names of all files and shared memory of a run. It ends with a dot, so that no prefix begins
/// with another one.
pub(crate) fn prefix(directory: &RunDirectory) -> String {
    format!("{MARK}{}.", directory.name)
}

/// Removes, when it is dropped, what a run has left behind.
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

/// Removes what runs of processes that are dead have left behind.
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
                // Of another user, or gone already: not ours to mend. A directory is left alone.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}
