//! Tests of the ring on plain memory, compared with a model that does the same in the most obvious
//! way.

mod deaths;
mod fixture;
mod hostile;
mod join;
mod load;
mod property;
mod resume;
mod torn;
mod values;
mod write;
