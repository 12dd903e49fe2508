//! A file that gets its name when it is good. Before, it has none, or a temporary one where the file system has no files without
//! names. So what fails leaves nothing that is in the way of the next try, and what is found under the name can be read.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, accessat, linkat, open, renameat_with};
use rustix::io::Errno;
use signal_hook::consts::SIGXFSZ;
use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use toroni_shell::failure::Failure;

/// The most bytes of a name that are in the temporary one, which has at most 255.
const MOST_NAME_BYTES: usize = 200;

/// What a file is found under.
enum Name {
    /// Nothing: it is gone when it is closed.
    None,
    Temporary(PathBuf),
    Own,
}

/// A file that did not exist before.
pub(crate) struct NewFile {
    path: PathBuf,
    name: Name,
    file: Arc<File>,
}

impl NewFile {
    /// Creates it without its name, if there is no file with it.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        survive_limit();
        if path.symlink_metadata().is_ok() {
            return Err(cannot_create(path, &Errno::EXIST.into()));
        }
        let created = match without_name(path) {
            Ok(Some(file)) => Ok((file, Name::None)),
            Ok(None) => with_temporary_name(path),
            Err(error) => Err(error),
        };
        let (file, name) = created.map_err(|error| cannot_create(path, &error))?;
        Ok(Self { path: path.to_owned(), name, file: Arc::new(file) })
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Gives it its name, if it does not have it. Another file with this name stays.
    pub(crate) fn name(&mut self) -> io::Result<()> {
        match &self.name {
            Name::Own => return Ok(()),
            Name::None => {
                linkat(CWD, of_descriptor(&self.file), CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?;
            }
            Name::Temporary(temporary) => {
                match renameat_with(CWD, temporary, CWD, &self.path, RenameFlags::NOREPLACE) {
                    // The file system cannot do both in one step.
                    Err(Errno::INVAL | Errno::NOSYS) if self.path.symlink_metadata().is_err() => {
                        std::fs::rename(temporary, &self.path)
                    }
                    Err(Errno::INVAL | Errno::NOSYS) => Err(Errno::EXIST.into()),
                    named => named.map_err(io::Error::from),
                }?;
            }
        }
        self.name = Name::Own;
        Ok(())
    }

    /// Removes it. If it has been removed already, there is nothing to do.
    pub(crate) fn discard(&mut self) {
        let _ = match std::mem::replace(&mut self.name, Name::None) {
            Name::None => Ok(()),
            Name::Temporary(temporary) => std::fs::remove_file(temporary),
            Name::Own => std::fs::remove_file(&self.path),
        };
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if matches!(self.name, Name::Temporary(_)) {
            self.discard();
        }
    }
}

/// Returns the path by which the kernel gives a file without a name one.
fn of_descriptor(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Creates a file without a name. Returns `None` where that is not possible, or it could not get one later.
fn without_name(path: &Path) -> io::Result<Option<File>> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match open(directory.unwrap_or(Path::new(".")), flags, Mode::from_raw_mode(0o666)) {
        Ok(file) => {
            let file = File::from(file);
            let has_path =
                accessat(CWD, of_descriptor(&file), rustix::fs::Access::EXISTS, AtFlags::empty());
            Ok(has_path.is_ok().then_some(file))
        }
        // A kernel without such files takes the flag for one that does not fit a directory.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Creates a file under a name that no process of any PID namespace has.
fn with_temporary_name(path: &Path) -> io::Result<(File, Name)> {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let mut hidden = b".".to_vec();
    hidden.extend(&name[..name.len().min(MOST_NAME_BYTES)]);
    let random = RandomState::new().build_hasher().finish();
    hidden.extend(format!(".{random:016x}.tmp").as_bytes());
    let temporary = path.with_file_name(OsString::from_vec(hidden));
    let file = File::options().write(true).create_new(true).open(&temporary)?;
    Ok((file, Name::Temporary(temporary)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Two processes of different PID namespaces may have the same number, as these two in one process.
    #[test]
    fn the_first_that_is_named_stays() {
        let directory =
            std::env::temp_dir().join(format!("toroni-new-file-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("a.mcap");
        let create = |has_name: bool| {
            if !has_name {
                return NewFile::create(&path).unwrap();
            }
            let (file, name) = with_temporary_name(&path).unwrap();
            NewFile { path: path.clone(), name, file: Arc::new(file) }
        };
        for has_name in [false, true] {
            let (mut first, mut second) = (create(has_name), create(has_name));
            first.name().unwrap();
            assert_eq!(second.name().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            drop((first, second));
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
            let mut third = create(true);
            third.discard();
            fs::remove_file(&path).unwrap();
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        }
        fs::remove_dir(&directory).unwrap();
    }
}
