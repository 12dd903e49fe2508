//! The C and C++ bindings. CMake builds, tests, installs and packages them. Needs Debian's packages `cmake`, `g++`,
//! `pkg-config` and `dpkg-dev`, and for one step `valgrind`.

use std::path::PathBuf;
use std::process::Command;

use super::licences::Shipped;
use crate::command::{Failure, Steps, run as run_command};
use crate::metadata::{self, root};

/// What is installed beside the library.
pub(super) const LICENCES: Shipped =
    Shipped { package: "toroni-c", workspace: "", file: "bindings/c/third-party.txt" };

/// That of the library without a bus.
pub(super) const LICENCES_OF_NET: Shipped =
    Shipped { package: "toroni-net-c", workspace: "", file: "bindings/c-net/third-party-net.txt" };

pub(super) fn steps(steps: &mut Steps) -> Result<(), Failure> {
    let plain = plain()?;
    steps.step("c: licences of what is linked in", || {
        LICENCES.check()?;
        LICENCES_OF_NET.check()
    });
    steps.step("c: build", || plain.make());
    steps.step("c: tests", || plain.test());
    steps.step("c: installed and packed", || {
        run(Command::new(root().join("bindings/c/tests/installed.sh")).arg(&plain.folder))
    });
    Ok(())
}

/// The tests once more, while something watches how they use memory.
pub(super) fn memory(steps: &mut Steps) -> Result<(), Failure> {
    let plain = plain()?;
    let sanitized = Build {
        folder: folder("sanitized")?,
        options: &["-DCMAKE_BUILD_TYPE=Debug", "-DTORONI_SANITIZE=ON"],
    };
    steps.step("c: tests with sanitizers", || {
        sanitized.make()?;
        sanitized.test()
    });
    steps.step("c: tests under memcheck", || {
        plain.make()?;
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["-q", "--error-exitcode=1", "--leak-check=full"]);
        // The child of a fork exits at once, and does not free what it has from the parent.
        valgrind.arg("--child-silent-after-fork=yes");
        run(valgrind.arg(plain.folder.join("tests/test_c")))
    });
    Ok(())
}

fn plain() -> Result<Build, Failure> {
    Ok(Build {
        folder: folder("debug")?,
        // The prefix of Debian's packages. It determines the folder of the libraries.
        options: &["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_INSTALL_PREFIX=/usr"],
    })
}

/// Builds the programs that the test across languages runs, and says where they are.
pub(super) fn conformance(command: &mut Command) -> Result<(), Failure> {
    plain()?.make()?;
    command.env("TORONI_CONFORMANCE_C", folder("debug")?.join("tests"));
    Ok(())
}

pub(super) fn measure() -> Result<Vec<Command>, Failure> {
    let fast = Build { folder: folder("release")?, options: &["-DCMAKE_BUILD_TYPE=Release"] };
    fast.make()?;
    let program = |name| Command::new(fast.folder.join("tests").join(name));
    Ok(vec![program("measure_c"), program("measure_cpp")])
}

struct Build {
    folder: PathBuf,
    options: &'static [&'static str],
}

impl Build {
    fn make(&self) -> Result<String, Failure> {
        let mut configure = cmake();
        configure.arg("-S").arg(root().join("bindings/c")).arg("-B").arg(&self.folder);
        run(configure.arg("-DTORONI_TESTS=ON").args(self.options))?;
        run(cmake().arg("--build").arg(&self.folder).args(["--parallel", "2"]))
    }

    fn test(&self) -> Result<String, Failure> {
        // Verbose, because `.ci/run` adds up the counts that the tests print.
        let mut ctest = Command::new("ctest");
        ctest.arg("--test-dir").arg(&self.folder).args(["--verbose", "--timeout", "300"]);
        run(&mut ctest)
    }
}

/// CMake, with the target folder of this cargo.
fn cmake() -> Command {
    let mut command = Command::new("cmake");
    if let Ok(metadata) = metadata::members() {
        command.env("CARGO_TARGET_DIR", metadata.target_directory);
    }
    command
}

fn folder(kind: &str) -> Result<PathBuf, Failure> {
    Ok(metadata::members()?.target_directory.join("bindings-c").join(kind))
}

fn run(command: &mut Command) -> Result<String, Failure> {
    run_command(command).map(|()| String::new())
}
