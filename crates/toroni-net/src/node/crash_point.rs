//! The steps of a node at which a test kills it. In an ordinary build they compile to nothing.

macro_rules! crash_points {
    ($($variant:ident = $name:literal, $what:literal;)*) => {
        /// A step at which a process can die.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum CrashPoint { $(#[doc = $what] $variant,)* }

        #[cfg(test)]
        impl CrashPoint {
            /// All steps, in the order of their declaration.
            pub(super) const ALL: &[CrashPoint] = &[$(CrashPoint::$variant,)*];

            /// Returns the name by which `TORONI_CRASH` selects the step.
            pub(super) const fn name(self) -> &'static str {
                match self { $(CrashPoint::$variant => $name,)* }
            }
        }
    };
}

crash_points! {
    BeforeCheckpoint = "node-before-checkpoint", "Datagrams were sent; the journal does not say so.";
    AfterCheckpoint = "node-after-checkpoint", "The journal says what was sent.";
    BeforeRing = "node-before-ring", "Datagrams were received; the bus has nothing of them.";
    BeforeStatus = "node-before-status", "The bus has what was received; the sender does not know it.";
    AfterEnd = "node-after-end", "A stream has ended; its session still answers.";
    FetchStaged = "node-fetch-staged", "A part of history was received; the bus does not have it.";
    FetchPublished = "node-fetch-published", "The bus has a part of the history, and more is to come.";
}

/// Kills the process here, if `TORONI_CRASH=NAME:N` asks for the N-th time.
#[inline(always)]
pub(super) fn point(here: CrashPoint) {
    let _ = here;
    #[cfg(test)]
    toroni_testkit::crash::point(here.name());
}
