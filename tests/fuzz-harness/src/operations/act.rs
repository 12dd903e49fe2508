//! Performs a participant's step, which may be its last.

#[cfg(feature = "deaths")]
pub(super) use toroni::hook::CrashPoint;

/// The steps that the model follows. Without deaths, none is reported.
#[cfg(not(feature = "deaths"))]
#[expect(dead_code, reason = "no step is reported without the library's crash points")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CrashPoint {
    AfterLock,
    AfterReserve,
    AfterCommit,
    BetweenSequenceAndTail,
    MidArrival,
    ArrivalPending,
    MidGrow,
    MidDeclaration,
}

/// Does `work`, and dies at step number `die_at`, counted from 1, if `work` gets that far. Returns the steps reached,
/// where they are known, and the result if it lived.
///
/// `apart` is for those who may hold a robust lock: see `toroni::hook::rehearsal`.
#[cfg(feature = "deaths")]
pub(super) fn act<R: Send>(
    die_at: u8,
    apart: bool,
    work: impl FnOnce() -> R + Send,
) -> (Vec<CrashPoint>, Option<R>) {
    use toroni::hook::rehearsal;

    let act = || rehearsal::act(move |reached| reached.len() == usize::from(die_at), work);
    if !apart || die_at == 0 {
        return act();
    }
    let done = std::thread::scope(|scope| scope.spawn(act).join());
    done.unwrap_or_else(|cause| std::panic::resume_unwind(cause))
}

#[cfg(not(feature = "deaths"))]
pub(super) fn act<R: Send>(
    _die_at: u8,
    _apart: bool,
    work: impl FnOnce() -> R + Send,
) -> (Vec<CrashPoint>, Option<R>) {
    (Vec::new(), Some(work()))
}

/// Drops what a dead participant had.
pub(super) fn bury(handles: impl Sized) {
    #[cfg(feature = "deaths")]
    toroni::hook::rehearsal::bury(handles);
    #[cfg(not(feature = "deaths"))]
    drop(handles);
}
