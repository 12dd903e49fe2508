//! A file that gets its name when it is good. Before, it has a temporary name in the same directory, and is removed if it is
//! dropped. So what fails leaves nothing that is in the way of the next try, and what is found under the name can be read.

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use signal_hook::consts::SIGXFSZ;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use toroni_shell::failure::Failure;

/// The most bytes of a name that are in the temporary one, which has at most 255.
const MOST_NAME_BYTES: usize = 200;

/// A file that did not exist before.
pub(crate) struct NewFile {
    path: PathBuf,
    /// `None` when it has its name.
    temporary: Option<PathBuf>,
    file: Arc<File>,
}

impl NewFile {
    /// Creates it under a temporary name, if there is no file with its own.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        survive_limit();
        if path.symlink_metadata().is_ok() {
            return Err(cannot_create(path, &Errno::EXIST.into()));
        }
        let temporary = temporary(path);
        let create = || File::options().write(true).create_new(true).open(&temporary);
        let created = match create() {
            // This process has its id, so the one that left the file is gone.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_file(&temporary).and_then(|()| create())
            }
            created => created,
        };
        let file = created.map_err(|error| cannot_create(path, &error))?;
        Ok(Self { path: path.to_owned(), temporary: Some(temporary), file: Arc::new(file) })
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Gives it its name, if it does not have it. Another file with this name stays.
    pub(crate) fn name(&mut self) -> io::Result<()> {
        let Some(temporary) = &self.temporary else { return Ok(()) };
        match renameat_with(CWD, temporary, CWD, &self.path, RenameFlags::NOREPLACE) {
            // The file system cannot do both in one step.
            Err(Errno::INVAL | Errno::NOSYS) if self.path.symlink_metadata().is_err() => {
                std::fs::rename(temporary, &self.path)
            }
            Err(Errno::INVAL | Errno::NOSYS) => Err(Errno::EXIST.into()),
            named => named.map_err(io::Error::from),
        }?;
        self.temporary = None;
        Ok(())
    }

    /// Removes it. If it has been removed already, there is nothing to do.
    pub(crate) fn discard(&mut self) {
        let _ = std::fs::remove_file(self.temporary.take().as_ref().unwrap_or(&self.path));
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.temporary.is_some() {
            self.discard();
        }
    }
}

fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let mut hidden = b".".to_vec();
    hidden.extend(&name[..name.len().min(MOST_NAME_BYTES)]);
    hidden.extend(format!(".{}.tmp", std::process::id()).as_bytes());
    path.with_file_name(OsString::from_vec(hidden))
}

pub(crate) fn cannot_create(path: &Path, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        io::ErrorKind::AlreadyExists => ": choose another name, or remove it",
        _ => "",
    };
    Failure::Failed(format!("cannot create {}: {error}{advice}", path.display()))
}

/// Makes a write beyond the limit of this process (`ulimit -f`) an error. By default, the signal ends the process.
fn survive_limit() {
    static HANDLED: OnceLock<()> = OnceLock::new();
    HANDLED.get_or_init(|| {
        // Without a handler, it ends as by default.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    });
}
