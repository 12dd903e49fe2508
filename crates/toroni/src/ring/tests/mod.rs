//! The ring on plain memory, against a model that says what it does in the most obvious way.

mod deaths;
mod fixture;
mod hostile;
mod join;
mod load;
mod property;
mod resume;
mod torn;
mod write;
