//! TCP connections between the processes of a run: the port is in a file in the run directory.

use crate::Failure;
use crate::run_directory::RunDirectory;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a process waits for another one.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Accepts `count` connections from processes that [`connect`], without Nagle's delay.
pub(super) fn accept(directory: &RunDirectory, count: usize) -> Result<Vec<TcpStream>, Failure> {
    let failed = "accept connections";
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Failure::of(failed))?;
    let port = listener.local_addr().map_err(Failure::of(failed))?.port();
    // Renamed, so that no process reads half a number.
    let unfinished = directory.path.join("port.unfinished");
    fs::write(&unfinished, port.to_string())
        .and_then(|()| fs::rename(&unfinished, port_path(directory)))
        .map_err(Failure::of("write the port"))?;
    (0..count)
        .map(|_| {
            let (connection, _) = listener.accept().map_err(Failure::of(failed))?;
            connection.set_nodelay(true).map_err(Failure::of("set TCP_NODELAY"))?;
            Ok(connection)
        })
        .collect()
}

/// Connects to the process that [`accept`]s, as soon as it does.
pub(super) fn connect(directory: &RunDirectory) -> Result<TcpStream, Failure> {
    let port = wait_for("the port of the sender", || {
        fs::read_to_string(port_path(directory)).ok().and_then(|text| text.parse::<u16>().ok())
    })?;
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(Failure::of("connect to the sender"))
}

/// Repeats `check` until it finds something.
fn wait_for<T>(what: &str, check: impl Fn() -> Option<T>) -> Result<T, Failure> {
    let deadline = Instant::now() + LONGEST_WAIT;
    loop {
        if let Some(found) = check() {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            return Err(Failure::new(format!("waited {LONGEST_WAIT:?} for {what} in vain")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn port_path(directory: &RunDirectory) -> PathBuf {
    directory.path.join("port")
}
