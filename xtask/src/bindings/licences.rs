//! The licence texts of the crates that are linked into a binding. Shipping the texts fulfils the licences (see
//! `deny.toml`). They are in a file beside the binding, which must match `Cargo.lock`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use crate::command::{Failure, cargo};
use crate::metadata::{self, Package, root};

/// A package whose library users get.
pub(super) struct Shipped {
    pub(super) package: &'static str,
    /// The folder of its workspace, from the root.
    pub(super) workspace: &'static str,
    /// The file with the texts, from the root.
    pub(super) file: &'static str,
}

const COMMAND: &str = "cargo xtask bindings --licences";

impl Shipped {
    /// Fails if the file does not match what is linked in.
    pub(super) fn check(&self) -> Result<String, Failure> {
        let found = std::fs::read_to_string(root().join(self.file)).unwrap_or_default();
        if found == text(self.package, self.workspace, COMMAND)? {
            return Ok(String::new());
        }
        Err(Failure(format!("{} does not match what is linked in: run `{COMMAND}`", self.file)))
    }

    pub(super) fn write(&self) -> Result<(), Failure> {
        let cannot = |error| Failure(format!("cannot write {}: {error}", self.file));
        let text = text(self.package, self.workspace, COMMAND)?;
        std::fs::write(root().join(self.file), text).map_err(cannot)
    }
}

/// Returns the licences of the crates that are linked into a package. `workspace` is the folder of its workspace, from
/// the root, and `command` what a user runs to write the text.
pub(crate) fn text(package: &str, workspace: &str, command: &str) -> Result<String, Failure> {
    let mut text = format!(
        "What {package} has linked in, with its licences. Written by `{command}`.\n\
         The standard library of Rust is linked in, too: MIT or Apache-2.0, by the contributors of Rust, with\n\
         parts by others; https://github.com/rust-lang/rust/blob/master/COPYRIGHT says whose.\n"
    );
    let workspace = root().join(workspace);
    let linked = linked(package, &workspace)?;
    let metadata = metadata::everything_of(&workspace)?;
    let is_linked =
        |package: &&Package| linked.contains(&format!("{} v{}", package.name, package.version));
    let mut count = 0;
    for package in metadata.packages.iter().filter(is_linked) {
        let license = package.license.as_deref().unwrap_or("unknown");
        let Package { name, version, .. } = package;
        let line = "-".repeat(100);
        // Writing to a string does not fail.
        let _ = write!(text, "\n{line}\n{name} {version}: {license}\n{line}\n");
        let folder = package.manifest_path.parent().unwrap_or(Path::new("."));
        let mut texts = licences(folder)?;
        if texts.is_empty() {
            texts.push(standard(package)?);
        }
        for licence in texts {
            let _ = write!(text, "\n{}\n", licence.trim_end());
        }
        count += 1;
    }
    if count != linked.len() {
        return Err(Failure(format!("of {linked:?}, cargo metadata knows {count}")));
    }
    Ok(text)
}

/// The foreign packages that are linked into the library of a package, as `name vVersion`.
fn linked(package: &str, workspace: &Path) -> Result<BTreeSet<String>, Failure> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut tree =
        cargo(["tree", "--locked", "--prefix", "none", "--no-dedupe", "--format", "{p}"]);
    // Without build dependencies and procedural macros, which run only during compilation.
    tree.args(["--edges", "normal,no-proc-macro", "--target", &target, "--package", package]);
    tree.arg("--manifest-path").arg(workspace.join("Cargo.toml"));
    let output =
        tree.output().map_err(|error| Failure(format!("cannot start cargo tree: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure(format!("cargo tree failed: {said}")));
    }
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    // cargo prints the folder of a member in parentheses.
    let others =
        lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains('('));
    Ok(others.map(str::to_owned).collect())
}

/// The licence texts in a package's folder: those of MIT, if there is a choice. None if the package ships none.
fn licences(folder: &Path) -> Result<Vec<String>, Failure> {
    let cannot = |error| Failure(format!("cannot read {}: {error}", folder.display()));
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        names.insert(entry.map_err(cannot)?.file_name().to_string_lossy().into_owned());
    }
    let read = |name: &&str| std::fs::read_to_string(folder.join(name)).map_err(cannot);
    chosen(&names).iter().map(read).collect()
}

/// The standard text of MIT with the authors of a package, for a package that ships no text and may be used under MIT.
fn standard(package: &Package) -> Result<String, Failure> {
    let Package { name, version, license, authors, repository, .. } = package;
    // Some write `MIT/Apache-2.0`.
    let mut choices = license.iter().flat_map(|all| all.split([' ', '/']));
    if !choices.any(|choice| choice == "MIT") || license.iter().any(|all| all.contains(" AND ")) {
        let problem = "has no licence text: xtask/src/bindings/licences.rs must learn its licence";
        return Err(Failure(format!("{name} {version} {problem}")));
    }
    let holders = if authors.is_empty() {
        format!("the authors of {name}, {}", repository.as_deref().unwrap_or("see its page"))
    } else {
        authors.join(", ")
    };
    Ok(format!("MIT License\n\nCopyright (c) {holders}\n\n{MIT}"))
}

/// The text of the MIT licence without its title and its line of copyright, from <https://spdx.org/licenses/MIT.html>.
const MIT: &str = "\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the \"Software\"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
";

/// Selects the files with the texts from all in a folder.
fn chosen(names: &BTreeSet<String>) -> Vec<&str> {
    let begins = |name: &str, with: &[&str]| {
        let name = name.to_uppercase();
        with.iter().any(|word| name.starts_with(word))
    };
    let notices = names.iter().filter(|name| begins(name, &["NOTICE", "COPYRIGHT"]));
    let licences = || names.iter().filter(|name| begins(name, &["LICENSE", "LICENCE", "COPYING"]));
    let mit: Vec<_> = licences().filter(|name| name.to_uppercase().contains("MIT")).collect();
    let licences = if mit.is_empty() { licences().collect() } else { mit };
    if licences.is_empty() {
        return Vec::new();
    }
    notices.chain(licences).map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mit_is_taken_where_there_is_a_choice() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        let all = names(&["COPYRIGHT", "Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "src"]);
        assert_eq!(chosen(&all), ["COPYRIGHT", "LICENSE-MIT"]);
        assert_eq!(chosen(&names(&["LICENSE", "NOTICE.md"])), ["NOTICE.md", "LICENSE"]);
        assert_eq!(chosen(&names(&["COPYRIGHT", "src"])), [""; 0]);
    }

    #[test]
    fn what_is_linked_into_the_program_has_licences() {
        let text = text("toroni-cli", "", "a test").unwrap();
        // Ships no text.
        assert!(text.contains("\nbinrw "), "{text}");
        assert!(text.contains("Copyright (c) jam1garner"), "{text}");
    }

    #[test]
    fn what_is_linked_into_the_c_library_is_known() {
        let linked = linked("toroni-c", root()).unwrap();
        assert!(linked.iter().any(|name| name.starts_with("rustix v")), "{linked:?}");
        // Ours, and what only the compiler runs.
        assert!(!linked.iter().any(|name| name.starts_with("toroni")), "{linked:?}");
        assert!(!linked.iter().any(|name| name.starts_with("syn ")), "{linked:?}");
    }
}
