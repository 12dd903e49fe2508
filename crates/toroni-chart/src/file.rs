//! The file of a picture: checked before a measurement, and written after it.

use crate::Error;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Checks that a chart can be written to this file. Call it before a measurement, which may take minutes. Leaves no
/// new file behind, because the measurement may fail.
///
/// # Errors
/// If the file can be neither made nor opened for writing.
pub fn check_writable(path: &Path) -> Result<(), Error> {
    let checked = match File::create_new(path) {
        Ok(_) => std::fs::remove_file(path),
        // Append, because it may be the chart of an earlier run.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            OpenOptions::new().append(true).open(path).map(drop)
        }
        Err(error) => Err(error),
    };
    checked.map_err(cannot_write(path))
}

/// Parses the file of a chart on a command line. A name that ends as that of another format is refused: the file would
/// contain SVG all the same.
///
/// # Errors
/// Why there can be no chart in this file.
pub fn parse_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(kind) if !kind.eq_ignore_ascii_case("svg") => Err(format!(
            "a chart is written as SVG: name a file that ends in .svg, and convert it afterwards (rsvg-convert -o {} {})",
            path.display(),
            path.with_extension("svg").display()
        )),
        _ => Ok(path),
    }
}

/// Writes a chart to this file.
///
/// # Errors
/// If it cannot be written.
pub fn write(path: &Path, svg: &str) -> Result<(), Error> {
    std::fs::write(path, svg).map_err(cannot_write(path))
}

fn cannot_write(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toroni_testkit::Directory;

    #[test]
    fn the_check_of_a_file_changes_nothing() {
        let directory = Directory::new();
        let path = directory.path().join("chart.svg");
        check_writable(&path).unwrap();
        assert!(!path.exists());
        write(&path, "<svg/>").unwrap();
        check_writable(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "<svg/>");
        for wrong in [directory.path().to_owned(), directory.path().join("missing/chart.svg")] {
            let said = check_writable(&wrong).unwrap_err().to_string();
            assert!(said.starts_with(&format!("cannot write {}: ", wrong.display())), "{said}");
        }
    }
}
