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
pub fn parse_path(path: PathBuf) -> Result<PathBuf, String> {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    // Also of a name that has nothing else, such as `.png`.
    let kind = name.iter().rposition(|byte| *byte == b'.').map(|point| &name[point + 1..]);
    let Some(kind) = kind.filter(|kind| !kind.eq_ignore_ascii_case(b"svg")) else {
        return Ok(path);
    };
    let mut advice = "a chart is written as SVG: name a file that ends in .svg".to_owned();
    let converted =
        ["png", "pdf", "ps"].into_iter().find(|it| kind.eq_ignore_ascii_case(it.as_bytes()));
    if let (Some(format), Some(_)) = (converted, path.extension()) {
        let svg = path.with_extension("svg");
        let (path, svg) = (path.display(), svg.display());
        advice.push_str(&format!(
            ", and convert it afterwards (rsvg-convert -f {format} -o {path} {svg})"
        ));
    }
    Err(advice)
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
    fn only_names_of_svg_files_are_taken() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        let path = |name: &[u8]| PathBuf::from(OsStr::from_bytes(name));
        for name in
            [&b"chart.svg"[..], b"a.b/chart", b"chart.SVG", b"\xff.svg", b"v1.2.svg", b".svg"]
        {
            assert_eq!(parse_path(path(name)), Ok(path(name)));
        }
        let said = |name| parse_path(path(name)).unwrap_err();
        for (name, command) in [
            (&b"a/chart.png"[..], "(rsvg-convert -f png -o a/chart.png a/chart.svg)"),
            (b"chart.PDF", "(rsvg-convert -f pdf -o chart.PDF chart.svg)"),
            (b"chart.ps", "(rsvg-convert -f ps -o chart.ps chart.svg)"),
        ] {
            assert!(said(name).ends_with(command), "{}", said(name));
        }
        for name in [&b".png"[..], b"chart.jpg", b"chart.txt", b"chart.", b"\xff.gif"] {
            assert!(said(name).ends_with(".svg"), "{}", said(name));
        }
    }

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
