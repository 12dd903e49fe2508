//! What Toroni's programs on a terminal share.
//!
//! | modules | contents |
//! |---|---|
//! | [`location`] | `--bus` and `--dir`; patterns |
//! | [`complete`], [`man`] | completion in shells; manual pages |
//! | [`human`], [`age`] | sizes, times and rates as text; how old messages are |
//! | [`output`], [`exchange`] | standard output, tables, JSON; the messages that `sub --json` writes and `pub --json` reads |
//! | [`printer`], [`template`] | messages as text |
//! | [`note`], [`progress`] | standard error |
//! | [`program`], [`exits`] | the command line, exit codes |
//! | [`failure`], [`finding`] | the texts of errors; the results of checks |
//! | [`notice`], [`openmetrics`] | what a node reports of itself; metrics as text |
//! | [`stop`], [`suspend`], [`ready`] | signals that end a command, Ctrl-Z; `--ready-fd` |
//!
//! It is published because the programs need it. It promises no stability.

pub mod age;
pub mod complete;
pub mod exchange;
pub mod exits;
pub mod failure;
pub mod finding;
pub mod human;
pub mod location;
pub mod man;
pub mod note;
pub mod notice;
pub mod openmetrics;
pub mod output;
pub mod printer;
pub mod program;
pub mod progress;
pub mod ready;
pub mod stop;
pub mod suspend;
pub mod template;
