//! Tests what the source and the builds must look like.

mod builds;
mod circles;
mod layers;
mod lengths;
mod parsed;
mod shipped;
mod targets;
mod type_names;
pub(crate) mod workspace;
