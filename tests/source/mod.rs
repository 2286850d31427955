//! What the source and the builds must look like.

mod builds;
mod layers;
mod shipped;
mod targets;
mod use_tree;
