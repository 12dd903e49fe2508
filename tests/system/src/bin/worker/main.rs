//! A process for tests to kill, stop and measure. It publishes or receives as fast as it can.
//!
//! `worker ROLE key=value …`; tests start it through `system_tests::worker`. Each role prints a line when it is ready, and
//! at the end what it saw. A failure is a panic, with the reason on standard error. With `refuse=true`, the kernel refuses
//! it the system call membarrier.

mod create;
mod doze;
mod dump;
mod exec;
mod fork;
mod hostile;
mod idle;
mod inlet;
mod join;
mod limits;
mod probe;
mod publish;
mod rouse;
mod scramble;
mod served;
mod soak;
mod step;
mod subscribe;
mod thread;
mod ways;

/// Where the roles look for them.
mod options {
    pub(crate) use system_tests::options::Options;
}

use options::Options;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let role = arguments.next().unwrap_or_default();
    let options = Options::parse(arguments);
    if options.or("refuse", false) {
        system_tests::sandbox::refuse_membarrier();
    }
    match role.as_str() {
        "publish" => publish::run(&options),
        "subscribe" => subscribe::run(&options),
        "inlet" => inlet::run(&options),
        "step" => step::run(&options),
        "join" => join::run(&options),
        "create" => create::run(&options),
        "probe" => probe::run(&options),
        "fork" => fork::run(&options),
        "exec" => exec::run(&options),
        "stay" => exec::stay(),
        "thread" => thread::run(&options),
        "limits" => limits::run(&options),
        "scramble" => scramble::run(&options),
        "doze" => doze::run(&options),
        "rouse" => rouse::run(&options),
        "dump" => dump::run(&options),
        "burn" => rouse::burn(),
        "idle" => idle::run(&options),
        "hostile" => hostile::run(&options),
        "soak-publish" => soak::publish::run(&options),
        "soak-subscribe" => soak::subscribe::run(&options),
        role => panic!("no role {role:?}"),
    }
}
