//! A fence on behalf of other processes: the system call membarrier(2), and its counterpart, which costs nothing.
//!
//! A thread of a process that has called [`register`] executes [`light_fence`] between two accesses; another thread, of
//! any process, executes [`membarrier`] between two of its own. Then the pair is ordered as if both executed
//! `fence(SeqCst)`: the kernel interrupts each processor on which a registered process runs, and a processor that runs
//! none has executed a full barrier when it switched away from that process.

#[cfg(all(not(loom), not(miri)))]
use rustix::thread::MembarrierCommand;

/// The kernel, or a filter of system calls, refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

/// Registers this process for the [`membarrier`] of others, if it is not registered yet. This cannot be undone. It may
/// take tens of milliseconds in a process with several threads.
#[cfg(not(loom))]
pub(crate) fn register() -> Result<(), Refused> {
    #[cfg(not(miri))]
    return rustix::thread::membarrier(MembarrierCommand::RegisterGlobalExpedited)
        .map_err(|_| Refused);
    #[cfg(miri)]
    return Err(Refused);
}

/// Orders everything before it before everything after it, also in the threads of all processes that are registered.
#[cfg(not(loom))]
pub(crate) fn membarrier() -> Result<(), Refused> {
    #[cfg(not(miri))]
    return rustix::thread::membarrier(MembarrierCommand::GlobalExpedited).map_err(|_| Refused);
    #[cfg(miri)]
    return Err(Refused);
}

/// Acts as a full fence towards a thread that executes [`membarrier`]. Here, it only holds the compiler back.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn light_fence() {
    super::compiler_fence(super::Ordering::SeqCst);
}

#[cfg(loom)]
pub(crate) use model::{light_fence, membarrier};

/// What loom runs: the interrupt that the kernel sends. The thread in [`membarrier`] waits until the registered thread
/// has executed a fence, and that one does so at its next [`light_fence`]. One that is not asked executes none. If both
/// sides always executed a fence, a model would not notice that [`membarrier`] was left out.
///
/// The lock orders only threads that ask and those that answer, which the real call orders as well.
#[cfg(loom)]
pub(crate) mod model {
    use super::Refused;
    use loom::sync::atomic::{Ordering, fence};
    use loom::sync::{Condvar, Mutex};

    loom::lazy_static! {
        static ref PROCESSOR: Processor = Processor::new();
    }

    /// The processor of the one registered thread of a model.
    struct Processor {
        state: Mutex<State>,
        answered: Condvar,
    }

    #[derive(Default)]
    struct State {
        runs: bool,
        asked: usize,
        answered: usize,
    }

    impl Processor {
        fn new() -> Self {
            Self { state: Mutex::new(State::default()), answered: Condvar::new() }
        }
    }

    /// Runs the calling thread as the registered one until this is dropped.
    pub(crate) struct Running;

    impl Running {
        pub(crate) fn begin() -> Self {
            PROCESSOR.state.lock().unwrap().runs = true;
            Self
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            // The switch to another thread is a fence.
            fence(Ordering::SeqCst);
            let mut state = PROCESSOR.state.lock().unwrap();
            state.runs = false;
            PROCESSOR.answered.notify_all();
        }
    }

    /// A moment at which the interrupt may come.
    pub(crate) fn light_fence() {
        let mut state = PROCESSOR.state.lock().unwrap();
        if state.asked != state.answered {
            fence(Ordering::SeqCst);
            state.answered = state.asked;
            PROCESSOR.answered.notify_all();
        }
    }

    pub(crate) fn membarrier() -> Result<(), Refused> {
        fence(Ordering::SeqCst);
        let mut state = PROCESSOR.state.lock().unwrap();
        state.asked += 1;
        let mine = state.asked;
        while state.runs && state.answered < mine {
            state = PROCESSOR.answered.wait(state).unwrap();
        }
        drop(state);
        fence(Ordering::SeqCst);
        Ok(())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
pub(crate) mod tests {
    use super::*;

    /// Makes membarrier fail in this thread, as a container's filter of system calls may do. The kernel is asked
    /// before it looks at the arguments.
    pub(crate) fn refuse_in_this_thread() {
        let statement = |code: u32, yes, no, value| libc::sock_filter {
            code: u16::try_from(code).unwrap(),
            jt: yes,
            jf: no,
            k: value,
        };
        let give = libc::BPF_RET | libc::BPF_K;
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
        let number = u32::try_from(libc::SYS_membarrier).unwrap();
        let mut filter = [
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, number),
            statement(give, 0, 0, libc::SECCOMP_RET_ALLOW),
            statement(give, 0, 0, refused),
        ];
        let len = u16::try_from(filter.len()).unwrap();
        let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
        // SAFETY: the program is of valid statements that live through the call, which copies them.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn a_filter_of_system_calls_is_a_refusal() {
        assert_eq!((register(), membarrier()), (Ok(()), Ok(())), "Linux 4.16 or later");
        std::thread::spawn(|| {
            refuse_in_this_thread();
            assert_eq!((register(), membarrier()), (Err(Refused), Err(Refused)));
        })
        .join()
        .unwrap();
    }
}
